// Uses the installed library as another project does: y = Σ x², and what came back as dy/dx.
#include <cstdio>

#include "autograd/ops.h"
#include "autograd/tape.h"
#include "tensor/tensor.h"

int main() {
  storytape::Tape<double> tape;
  const storytape::Var<double> x = tape.input(storytape::Tensor<double>({3}, {1, 2, 3}));
  const storytape::Var<double> y = sum(mul(x, x));
  tape.backward(y);
  std::printf("%g:", y.value().item());
  for (const double g : x.grad().values()) std::printf(" %g", g);
  std::printf("\n");
}
