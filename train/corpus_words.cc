#include "train/corpus_words.h"

#include <string>
#include <utility>

namespace storytape {
namespace {

struct Name {
  std::string_view text;
  bool female;
};

constexpr Name kChildren[] = {
    {"Lily", true}, {"Mia", true},   {"Anna", true},  {"Lucy", true},   {"Sara", true},  {"Emma", true},
    {"Amy", true},  {"Rose", true},  {"Nina", true},  {"Kate", true},   {"Ruby", true},  {"Molly", true},
    {"Tom", false}, {"Tim", false},  {"Ben", false},  {"Max", false},   {"Sam", false},  {"Jack", false},
    {"Leo", false}, {"Finn", false}, {"Noah", false}, {"Billy", false}, {"Luke", false}, {"Adam", false},
};

constexpr Name kAnimals[] = {
    {"Coco", true}, {"Hazel", true}, {"Daisy", true},  {"Bella", true},  {"Pepper", true}, {"Luna", true},
    {"Pip", false}, {"Toby", false}, {"Buddy", false}, {"Rusty", false}, {"Milo", false},  {"Oscar", false},
};

constexpr std::string_view kAnimalKinds[] = {"bunny", "mouse",    "fox", "bear", "duck",   "frog",
                                             "cat",   "squirrel", "pig", "owl",  "turtle", "puppy"};

constexpr std::string_view kTraits[] = {"little", "little", "little", "kind",     "happy",
                                        "brave",  "clever", "young",  "cheerful", "curious"};

struct Toy {
  std::string_view noun, adjectives, play, played;
};

constexpr Toy kToys[] = {
    {"ball", "red|blue|green|yellow|big|shiny", "bounce", "bounced"},
    {"kite", "red|blue|yellow|pink|purple|orange", "fly", "flew"},
    {"doll", "pretty|old|little|new|pink", "dance with", "danced with"},
    {"toy car", "red|blue|green|fast|shiny", "race", "raced"},
    {"teddy bear", "brown|soft|old|white|big", "cuddle", "cuddled"},
    {"drum", "red|blue|big|loud|orange", "bang on", "banged on"},
    {"toy boat", "blue|white|green|wooden|yellow", "sail", "sailed"},
    {"toy train", "red|green|long|black|wooden", "push", "pushed"},
    {"robot", "silver|tall|blue|funny|new", "march with", "marched with"},
    {"book", "big|old|blue|yellow|funny", "read", "read"},
    {"whistle", "silver|loud|red|shiny|wooden", "blow", "blew"},
    {"balloon", "red|blue|yellow|pink|green", "chase", "chased"},
};

constexpr Toy kLightToys[] = {
    {"ball", "red|blue|green|yellow|big|shiny", "throw", "threw"},
    {"kite", "red|blue|yellow|pink|purple|orange", "fly", "flew"},
    {"balloon", "red|blue|yellow|pink|green", "chase", "chased"},
    {"paper plane", "white|yellow|blue|pink", "throw", "threw"},
};

struct Noun {
  std::string_view noun, adjectives;
};

constexpr Noun kFoods[] = {
    {"apple", "red|green|sweet|shiny"},    {"pear", "sweet|yellow|green|soft"},
    {"cookie", "big|round|sweet|warm"},    {"cupcake", "pink|yellow|little|sweet"},
    {"sandwich", "big|tasty|cheese|long"}, {"muffin", "warm|sweet|big|round"},
    {"orange", "round|sweet|big"},         {"pancake", "warm|round|big|sweet"},
};

struct Place {
  std::string_view noun, preposition;
};

constexpr Place kPlaces[] = {
    {"park", "in"}, {"garden", "in"}, {"forest", "in"}, {"meadow", "in"},
    {"yard", "in"}, {"beach", "at"},  {"river", "by"},  {"lake", "by"},
    {"pond", "by"}, {"hill", "on"},   {"farm", "on"},   {"playground", "at"},
};

constexpr Place kWaters[] = {{"beach", "at"}, {"river", "by"}, {"lake", "by"}, {"pond", "by"}};

constexpr std::string_view kSpots[] = {
    "under a green bush",   "behind a big tree", "in the tall grass", "next to a gray rock",
    "under a wooden bench", "behind the fence",  "near the gate",     "behind a yellow flower",
};

constexpr std::string_view kRooms[] = {
    "under the bed",   "behind the sofa", "in the kitchen", "under the table",
    "behind the door", "in the closet",   "in the bathtub", "under the blanket",
};

constexpr std::string_view kHobbies[] = {
    "play outside",        "sing songs",      "dance",           "climb trees",
    "draw pictures",       "look at the sky", "run in the sun",  "pick flowers",
    "hear stories",        "jump in puddles", "count the stars", "watch the birds",
    "splash in the water", "read books",
};

void set_pronouns(StoryWriter& w, const std::string& prefix, bool female) {
  w.set(prefix + "he", female ? "she" : "he");
  w.set(prefix + "him", female ? "her" : "him");
  w.set(prefix + "his", female ? "her" : "his");
}

void set_person(StoryWriter& w, const std::string& slot, const Name& name, std::string_view kind) {
  w.set(slot, name.text);
  set_kind(w, slot, kind);
}

// True if the hero is an animal.
bool hero_is_animal(const StoryWriter& w) {
  const std::string& kind = w.get("hero.kind");
  return kind != "girl" && kind != "boy";
}

std::string_view child_kind(const Name& name) {
  return name.female ? "girl" : "boy";
}

void set_toy(StoryWriter& w, const std::string& slot, const Toy& toy) {
  set_thing(w, slot, "[" + std::string(toy.adjectives) + "]", toy.noun);
  w.set(slot + ".play", std::string(toy.play) + " the {" + slot + "}");
  w.set(slot + ".played", std::string(toy.played) + " the {" + slot + "}");
}

void set_place(StoryWriter& w, const Place& place) {
  const std::string noun(place.noun);
  w.set("place", noun);
  w.set("place.in", std::string(place.preposition) + " the " + noun);
  w.set("place.to", "to the " + noun);
}

}  // namespace

void set_kind(StoryWriter& w, std::string_view person, std::string_view kind) {
  const std::string slot(person);
  w.set(slot + ".kind", kind);
  w.set(slot + ".a", with_article(std::string(w.pick(kTraits)) + " " + std::string(kind)));
}

void a_child(StoryWriter& w) {
  const Name& name = w.pick(kChildren);
  set_person(w, "hero", name, child_kind(name));
  set_pronouns(w, "", name.female);
}

void an_animal(StoryWriter& w) {
  const Name& name = w.pick(kAnimals);
  set_person(w, "hero", name, w.pick(kAnimalKinds));
  set_pronouns(w, "", name.female);
}

void a_hero(StoryWriter& w) {
  w.chance(65) ? a_child(w) : an_animal(w);
}

void a_friend(StoryWriter& w) {
  // Mostly of the other sex, so that most stories' pronouns point to one of the two only.
  const bool other_sex = w.chance(75);
  const bool hero_female = w.get("he") == "she";
  const bool animal = hero_is_animal(w);
  for (;;) {
    const Name& name = animal ? w.pick(kAnimals) : w.pick(kChildren);
    const std::string_view kind = animal ? w.pick(kAnimalKinds) : child_kind(name);
    const bool same_as_hero = name.text == w.get("hero") || (animal && kind == w.get("hero.kind"));
    if (same_as_hero || (other_sex && name.female == hero_female)) continue;
    set_person(w, "friend", name, kind);
    set_pronouns(w, "friend.", name.female);
    w.set("friend.intro", "{his} [friend|friend|good friend|neighbor] {friend}");
    return;
  }
}

void a_grown_up(StoryWriter& w) {
  constexpr Name kGrownUps[] = {{"mom", true},  {"mom", true},     {"dad", false},
                                {"dad", false}, {"grandma", true}, {"grandpa", false}};
  const Name& name = w.pick(kGrownUps);
  const std::string word(name.text);
  w.set("grown", "{his} " + word);
  std::string call = word;
  call[0] = static_cast<char>(call[0] - 'a' + 'A');
  w.set("grown.call", call);
  set_pronouns(w, "grown.", name.female);
}

void set_thing(StoryWriter& w, std::string_view slot, std::string_view adjective, std::string_view noun) {
  const std::string one_noun = w.fill(noun);
  const std::string one_adjective = w.fill(adjective);
  w.set(slot, "[" + one_adjective + " |]" + one_noun);
  w.set(std::string(slot) + ".a", with_article(one_adjective + " " + one_noun));
  w.set(std::string(slot) + ".noun", one_noun);
}

void a_toy(StoryWriter& w) {
  set_toy(w, "toy", w.pick(kToys));
}

void a_light_toy(StoryWriter& w) {
  set_toy(w, "toy", w.pick(kLightToys));
}

void two_toys(StoryWriter& w) {
  const auto [first, second] = w.pick_two(kToys);
  set_toy(w, "toy", first);
  set_toy(w, "other", second);
}

void a_food(StoryWriter& w) {
  const Noun& food = w.pick(kFoods);
  set_thing(w, "food", "[" + std::string(food.adjectives) + "]", food.noun);
}

void a_place(StoryWriter& w) {
  set_place(w, w.pick(kPlaces));
}

void a_place_by_water(StoryWriter& w) {
  set_place(w, w.pick(kWaters));
}

void two_spots(StoryWriter& w) {
  const auto [first, second] = w.pick_two(kSpots);
  w.set("spot", first);
  w.set("spot2", second);
}

void two_rooms(StoryWriter& w) {
  const auto [first, second] = w.pick_two(kRooms);
  w.set("room", first);
  w.set("room2", second);
}

void a_day(StoryWriter& w) {
  w.set("day",
        w.fill("one [day|day|day|morning|afternoon|sunny day|sunny morning|warm day|warm afternoon|bright "
               "morning]"));
}

void introduce_hero(StoryWriter& w) {
  const char* where = hero_is_animal(w)
                          ? "[in a hollow tree|in a cozy little house|in a green valley|at the edge of the "
                            "woods|in a warm little nest of leaves]"
                          : "[in a small town|in a little white house|in a quiet village|in a big city|in a "
                            "house near the sea]";
  w.set("where", where);
  w.set("hobby", w.pick(kHobbies));
  w.say("Once upon a time, there was {hero.a} named {hero}.",
        "Once upon a time, there was {hero.a} named {hero}.",
        "Once upon a time, there was {hero.a} named {hero}. {He} lived {where}.",
        "Once upon a time, {where}, there lived {hero.a} named {hero}.",
        "Once upon a time, there lived {hero.a} named {hero}.", "There once was {hero.a} named {hero}.",
        "{Hero} was {hero.a}. {He} lived {where}.", "{Hero} was {hero.a}.");
}

void open_story(StoryWriter& w) {
  introduce_hero(w);
  w.say("{He} loved to {hobby}.", "{He} liked to {hobby} [every day|all day long].",
        "{Hero} loved to {hobby}.", "{He} liked to {hobby}.");
}

void close_together(StoryWriter& w) {
  w.say("From that day on, {hero} and {friend} were best friends.",
        "{Hero} and {friend} were [very |]happy, and they played together every day.",
        "And from then on, {hero} and {friend} always helped each other.",
        "They laughed and played until the sun went down.", "{Hero} and {friend} went home with big smiles.",
        "After that, {hero} and {friend} liked to {hobby} together.",
        "And {hero} and {friend} stayed good friends forever.",
        "It was the best day ever for {hero} and {friend}.");
}

void close_alone(StoryWriter& w) {
  w.say("That night, {hero} went to bed with a [big |]smile.", "{Hero} was very happy and proud.",
        "{He} could not wait to tell everyone about it.", "And {hero} never forgot that day.",
        "That night, {hero} had a sweet dream about it.", "{He} smiled all the way home.",
        "It was a wonderful day for {hero}.");
}

}  // namespace storytape
