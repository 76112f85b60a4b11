// Plots between two friends.
#include <array>

#include "train/corpus_plots.h"
#include "train/corpus_words.h"

namespace storytape {
namespace {

void lost_and_found(StoryWriter& w) {
  cast(w, {a_hero, a_friend, a_grown_up, a_toy, a_place, two_spots, two_rooms, a_day});
  open_story(w);
  w.say("{His} favorite toy was {toy.a}.", "{He} had {toy.a}.", "{He} had {toy.a} and loved it very much.");
  w.say("The {toy} was a gift from {grown}.", "{He} liked to {toy.play} every day.",
        "{He} took the {toy} everywhere.");
  w.paragraph();
  w.say("{Day}, {hero} wanted to {toy.play}, but {he} could not find it.",
        "{Day}, {hero} looked for the {toy}, but it was gone.", "{Day}, {hero} saw that the {toy} was gone.");
  w.say("\"Where is my {toy}?\" {he} asked.", "\"Oh no! Where did my {toy} go?\" {he} cried.",
        "\"I can not find my {toy},\" {he} said.");
  w.say("{He} looked {room}. It was not there. {He} looked {room2}. It was not there either.",
        "{He} looked {room}, but the {toy} was not there.",
        "First, {he} looked {room}. Then {he} looked {room2}. No {toy}!");
  w.say("{Hero} was very sad.", "{Hero} sat down and cried.", "{Hero} felt very sad.");
  w.paragraph();
  w.say("{Friend.intro} saw {him} and asked, \"What is wrong, {hero}?\"",
        "{Friend.intro} came to the door and asked, \"Why are you sad, {hero}?\"",
        "Then {friend.intro} came by. \"Why are you crying, {hero}?\" asked {friend}.");
  w.say("\"I lost my {toy},\" said {hero}.", "\"My {toy} is gone,\" said {hero}.");
  w.say(
      "\"[Do not worry|Do not cry|Do not be sad]. [I will help you|We will look for it together],\" said "
      "{friend}.");
  w.say("\"Where did you play with it?\" asked {friend}. \"I played {place.in},\" said {hero}.",
        "\"Yesterday I played {place.in},\" said {hero}. \"Then we will go there,\" said {friend}.");
  w.say("So they went {place.to}.", "They ran {place.to} together.");
  w.say("They looked {spot2}, but they did not see it.", "They looked and looked.",
        "They looked everywhere.");
  w.set("finder", w.chance(60) ? "{friend}" : "{hero}");
  w.say("At last, {finder} looked {spot}. The {toy} was there!",
        "Then {finder} looked {spot} and shouted, \"Here it is!\" The {toy} was {spot}.",
        "Then {finder} saw something {spot}. It was the {toy}!");
  w.paragraph();
  w.say("{Hero} was so happy. \"Thank you, {friend}! You are a good friend,\" {he} said.",
        "{Hero} hugged {friend}. \"Thank you for your help,\" {he} said.",
        "\"You are the best friend, {friend}!\" said {hero}.");
  w.say("Then they {toy.played} together [all day|until dinner|until the sun went down].",
        "From that day on, {hero} took good care of the {toy}.",
        "After that, {hero} always put the {toy} back in the toy box.",
        "{Hero} carried the {toy} home and put it on {his} bed.");
  if (w.chance(40)) close_together(w);
}

void sharing_a_toy(StoryWriter& w) {
  cast(w, {a_hero, a_friend, a_grown_up, a_toy, a_place, a_day});
  open_story(w);
  w.say("{He} had {toy.a}. {He} did not like to share it.",
        "{Grown.call} gave {him} {toy.a}. {Hero} loved it.",
        "{He} had {toy.a}, and it was {his} favorite toy.");
  w.paragraph();
  w.say("{Day}, {hero} took the {toy} {place.to}. {Friend.intro} was there too.",
        "{Day}, {hero} {toy.played} {place.in}. {Friend.intro} came to watch.",
        "{Day}, {hero} met {friend.intro} {place.in}. {Hero} had the {toy} with {him}.");
  w.say("\"What a nice {toy.noun}! Can I {toy.play} too?\" asked {friend}.",
        "\"I like your {toy}. May I {toy.play} for a while?\" asked {friend}.",
        "\"Will you share your {toy} with me?\" asked {friend}.");
  w.say("\"No, it is mine!\" said {hero}. {He} held the {toy} tight.",
        "\"No! The {toy} is mine,\" said {hero}.",
        "{Hero} shook {his} head. \"No, I want it all for me,\" {he} said.");
  w.say("{Friend} was sad and walked away.", "{Friend} looked down and sat alone.",
        "{Friend} felt sad and began to cry.");
  w.paragraph();
  w.say("{Hero} {toy.played} all alone, but it was not fun.", "{Hero} played alone. Soon {he} was bored.",
        "{Hero} looked at {friend} and felt bad.",
        "Now {hero} had the {toy}, but {he} had no one to play with.");
  if (w.chance(50)) {
    w.say("{Grown} said, \"It is more fun when you share, {hero}.\"",
          "\"A toy is more fun with a friend,\" said {grown}.",
          "{Grown} saw this and said, \"{Friend} is sad. What can you do, {hero}?\"");
  } else {
    w.say("{He} thought about {friend}.", "{He} did not want {friend} to be sad.", "{He} knew what to do.");
  }
  w.paragraph();
  w.say("{Hero} went to {friend} and said, \"I am sorry. You can play with my {toy} too.\"",
        "\"I am sorry, {friend},\" said {hero}. \"We can share the {toy}.\"",
        "So {hero} gave the {toy} to {friend}. \"It is your turn,\" {he} said.");
  w.say("{Friend} smiled. \"Thank you, {hero}!\" said {friend}.",
        "{Friend} was happy again. \"Thank you!\" {friend.he} said.", "A big smile came to {friend}'s face.");
  w.say("They {toy.played} together, and it was a lot of fun.", "They took turns with the {toy} all day.",
        "First {friend} {toy.played}, and then {hero} {toy.played}.");
  w.say("{Hero} learned that sharing is fun.", "{Hero} learned that it is good to share.",
        "Now {hero} knew that sharing makes everyone happy.");
  if (w.chance(50)) close_together(w);
}

void sharing_food(StoryWriter& w) {
  cast(w, {a_hero, a_friend, a_grown_up, a_food, a_place, two_spots, a_day});
  open_story(w);
  w.paragraph();
  w.say("{Day}, {grown} gave {hero} {food.a}.", "{Day}, {hero} had {food.a} for lunch.",
        "{Day}, {hero} found {food.a} on the table. \"It is for you,\" said {grown}.");
  w.say("{Hero} took the {food} {place.to}.", "{Hero} put the {food} in a bag and walked {place.to}.");
  w.say("{He} sat down {spot} to eat.", "{He} found a nice place {spot} and sat down.");
  w.say("It smelled so good!", "{He} was very hungry.", "It looked so good!", "");
  w.paragraph();
  w.say("Then {he} saw {friend.intro}. {Friend} had nothing to eat.",
        "Just then, {friend.intro} came by. {Friend} looked at the {food}.",
        "{Friend.intro} sat down too. {Friend.he} had lost {friend.his} lunch and was sad.");
  w.say("\"I am so hungry,\" said {friend}.", "\"My tummy is empty,\" said {friend}.",
        "\"That is a nice {food.noun},\" said {friend}. \"I am hungry too.\"");
  w.say("{Hero} looked at the {food}. It was just enough for one.",
        "{Hero} wanted to eat the {food} all alone.", "{Hero} thought for a moment.");
  w.say("But {he} did not want {friend} to be hungry.", "But {friend} looked so sad.",
        "But then {he} had a good idea.");
  w.paragraph();
  w.say("{Hero} cut the {food} in two. \"Here is half for you,\" {he} said.",
        "{Hero} broke the {food} into two parts and gave one part to {friend}.",
        "\"We can share it,\" said {hero}, and {he} gave half of the {food} to {friend}.");
  w.say("\"Thank you, {hero}! You are so kind,\" said {friend}.",
        "{Friend} smiled and said, \"Thank you, {hero}!\"");
  w.say("They ate the {food} together. It was [so yummy|very good|sweet and good].",
        "They sat {spot} and ate together.");
  if (w.chance(50)) {
    w.paragraph();
    a_food(w);
    w.say("The next day, {friend} had {food.a}. {Friend.he} gave half of it to {hero}.",
          "The next day, {friend} came with {food.a}. \"Now I will share with you,\" said {friend}.");
  }
  w.say("{Hero} learned that food is better when you share it.", "{Hero} felt warm and happy inside.",
        "{Hero} was glad that {he} had shared.");
  if (w.chance(40)) close_together(w);
}

void new_friend(StoryWriter& w) {
  cast(w, {a_hero, a_friend, a_toy, a_place, two_spots, a_day});
  open_story(w);
  w.say("But {he} had no one to play with.", "{He} wanted to have a friend.", "{He} was often alone.");
  w.paragraph();
  w.say("{Day}, {hero} went {place.to}. {He} saw {friend.a} there.",
        "{Day}, {hero} saw {friend.a} {place.in}.",
        "{Day}, {friend.a} came {place.to}. {Hero} had never seen {friend.him} before.");
  w.say("The {friend.kind} sat {spot} all alone.", "The {friend.kind} looked sad and sat {spot}.",
        "The {friend.kind} was hiding {spot}.");
  w.say("{Hero} was shy, but {he} walked over.", "{Hero} wanted to say hello, but {he} was a little scared.",
        "{Hero} thought, \"Maybe we can be friends.\"");
  w.paragraph();
  w.say("\"Hello, I am {hero}. What is your name?\" {he} asked.",
        "\"Hi! My name is {hero}. Who are you?\" said {hero}.");
  w.say("\"My name is {friend},\" said the {friend.kind}.",
        "\"I am {friend},\" the {friend.kind} said in a small voice.");
  w.say(
      "\"Why are you alone, {friend}?\" asked {hero}. \"I am new here, and I have no friends,\" said "
      "{friend}.",
      "\"Why are you so sad, {friend}?\" asked {hero}. \"I do not know anyone here,\" said {friend}.",
      "\"I like to {hobby},\" said {hero}. \"I like that too, but I have no friends here,\" said {friend}.");
  w.say("\"I can be your friend!\" said {hero}.", "\"Now you know me,\" said {hero} with a smile.",
        "\"Do you want to play with me?\" asked {hero}. \"Yes!\" said {friend}.");
  w.paragraph();
  switch (w.below(3)) {
    case 0:
      w.say("They played hide and seek.", "\"Let us play hide and seek,\" said {hero}.");
      w.say("{Friend} hid {spot2}. {Hero} looked and looked.",
            "{Hero} counted to ten, and {friend} hid {spot2}.");
      w.say("\"I found you, {friend}!\" shouted {hero}, and they both laughed.",
            "At last, {hero} looked {spot2} and found {friend}. They both laughed.");
      break;
    case 1:
      w.say("{Hero} had {toy.a}. {He} showed it to {friend}.", "{Hero} showed {friend} {toy.a}.");
      w.say("They {toy.played} together.", "They {toy.played} all day.");
      w.say("\"This is so much fun!\" said {friend}.", "{Friend} was not shy anymore.");
      break;
    default:
      w.say("{Friend} had {toy.a}. \"We can {toy.play} together,\" said {friend}.",
            "{Friend} took out {toy.a}. {Hero} liked it very much.");
      w.say("They {toy.played} until it was time to go home.", "They {toy.played} and laughed a lot.");
      w.say("\"Will you come back tomorrow?\" asked {friend}. \"Yes!\" said {hero}.",
            "\"I am glad that I met you, {friend},\" said {hero}.");
  }
  w.say("Now {hero} and {friend} were not alone anymore.",
        "{Hero} had a new friend, and {friend} had one too.",
        "The next day, {hero} and {friend} met {place.in} again.");
  if (w.chance(40)) close_together(w);
}

void swapping(StoryWriter& w) {
  cast(w, {a_hero, a_friend, a_grown_up, two_toys, a_place, a_day});
  introduce_hero(w);
  w.say("{He} had {toy.a}.", "{He} had {toy.a} and loved it.", "{Grown} gave {him} {toy.a}.");
  w.say("{His} friend {friend} had {other.a}.",
        "{Hero} had a friend named {friend}. {Friend} had {other.a}.");
  w.paragraph();
  w.say("{Day}, they met {place.in}.", "{Day}, {hero} and {friend} played {place.in}.");
  w.say("\"I like your {other},\" said {hero}. \"I like your {toy},\" said {friend}.",
        "{Hero} looked at the {other}. \"I want to {other.play},\" {he} said.",
        "{Hero} was tired of the {toy}. {He} wanted the {other}.");
  w.say("\"Let us trade for one day,\" said {friend}.",
        "\"We can trade!\" said {hero}. \"That is a good idea,\" said {friend}.");
  w.say("{Hero} gave the {toy} to {friend}, and {friend} gave the {other} to {hero}.",
        "So {friend} took the {toy}, and {hero} took the {other}.");
  w.paragraph();
  w.say("{Hero} went home with the {other}. {He} {other.played} all evening.",
        "At home, {hero} {other.played}. It was fun.");
  w.say("But at night, {hero} missed {his} {toy}.", "But when {he} lay in bed, {he} thought about the {toy}.",
        "But then {he} looked at the shelf. The {toy} was not there, and {he} felt sad.");
  w.say("{Friend} was sad too. {Friend.he} missed {friend.his} {other}.",
        "At {friend}'s house, {friend} missed the {other} too.",
        "\"I want my {toy} back,\" {he} said to {grown}.");
  w.paragraph();
  w.say("In the morning, {hero} ran to {friend}'s house with the {other}.",
        "The next day, {hero} took the {other} and went to see {friend}.");
  w.say("\"Here is your {other},\" said {hero}. \"Can I have my {toy} back?\"",
        "\"I missed my {toy},\" said {hero}. \"And I missed my {other},\" said {friend}.");
  w.say("{Friend} laughed and gave the {toy} back to {hero}.", "{Friend} smiled and gave {hero} the {toy}.");
  w.say("Now {hero} had the {toy} again, and {friend} had the {other}.",
        "So {hero} got the {toy}, and {friend} got the {other}.");
  w.say("They played together, and everyone was happy.", "Then they played with both toys together.",
        "\"It is best to play together,\" said {hero}.");
  if (w.chance(40)) close_together(w);
}

void sick_friend(StoryWriter& w) {
  cast(w, {a_hero, a_friend, a_grown_up, a_place, a_day});
  introduce_hero(w);
  w.say("{His} best friend was {friend}. They played {place.in} every day.",
        "{Hero} and {friend} were best friends. They always played {place.in}.");
  w.paragraph();
  w.say("{Day}, {hero} went {place.to}, but {friend} did not come.",
        "{Day}, {hero} waited for {friend} {place.in}. But {friend} was not there.");
  w.say("\"Where is {friend}?\" {hero} asked {grown}.",
        "{Hero} ran home and asked {grown}, \"Where is {friend}?\"");
  w.say("\"{Friend} is sick and has to stay in bed,\" said {grown}.",
        "{Grown} said, \"{Friend} has a cold and can not play.\"");
  w.say("{Hero} was sad for {friend}.", "{Hero} wanted to make {friend} feel better.",
        "{Hero} wanted to help {friend}.");
  w.paragraph();
  struct Gift {
    const char *adjective, *noun, *made, *effect;
  };
  constexpr Gift kGifts[] = {
      {"[hot|warm|yummy]", "soup", "{He} and {grown} made some {gift}.",
       "{Friend} ate the {gift} and felt warm inside."},
      {"[yellow|red|blue|white]", "flowers", "{He} went {place.to} and picked some {gift}.",
       "{Friend} smelled the {gift} and smiled."},
      {"[funny|colorful|big]", "pictures", "{He} took {his} crayons and drew some {gift}.",
       "{Friend} looked at the {gift} and laughed."},
      {"[sweet|warm|little]", "cookies", "{He} and {grown} baked some {gift}.",
       "{Friend} ate two of the {gift}. They were very good."},
  };
  const Gift& gift = w.pick(kGifts);
  set_thing(w, "gift", gift.adjective, gift.noun);
  w.say("{Hero} had an idea.", "\"I know what to do,\" said {hero}.",
        "\"I will make something for {friend},\" said {hero}.");
  w.say(gift.made);
  w.say("Then {he} took the {gift} to {friend}'s house.",
        "{He} carried the {gift} to {friend} very carefully.");
  w.paragraph();
  w.say("{Friend} was in bed. {Friend.he} looked tired.", "{Friend} lay in bed with a red nose.");
  w.say("\"I brought you some {gift},\" said {hero}.",
        "\"I have something for you,\" said {hero}. {He} gave {friend} the {gift}.",
        "\"Look what I have for you,\" said {hero}, and {he} showed {friend} the {gift}.");
  w.say(gift.effect);
  w.say("\"Thank you, {hero}. I feel better now,\" said {friend}.",
        "\"You are so kind, {hero},\" said {friend}.");
  w.say("{Hero} sat by the bed and told {friend} a story.", "{Hero} stayed until {friend} fell asleep.",
        "{Hero} sang a song for {friend}.");
  w.paragraph();
  w.say("A few days later, {friend} was well again.", "Soon {friend} was not sick anymore.");
  w.say("{Hero} and {friend} played {place.in} again.", "{Friend} ran {place.to}, and {hero} was there.");
  if (w.chance(60)) close_together(w);
}

void stuck_in_a_tree(StoryWriter& w) {
  cast(w, {a_hero, a_friend, a_light_toy, a_place, a_day});
  open_story(w);
  w.say("{He} had {toy.a}.", "{Hero} had {toy.a} and liked it very much.");
  w.paragraph();
  w.say("{Day}, {hero} went {place.to} to {toy.play}.", "{Day}, {hero} {toy.played} {place.in}.");
  w.say("Suddenly, a strong wind came. It carried the {toy} up into a tall tree.",
        "The wind was strong, and the {toy} flew up into a tree.",
        "Then the {toy} got stuck in a tall tree.");
  w.say("\"Oh no! My {toy}!\" cried {hero}.", "\"How can I get my {toy} back?\" said {hero}.");
  w.paragraph();
  w.say("{Hero} jumped as high as {he} could, but {he} was too small.",
        "{Hero} jumped and jumped, but the tree was too tall.");
  w.say("Then {he} took a long stick, but the stick was too short.",
        "Then {he} tried to climb the tree, but {he} slid down again.",
        "{He} shook the tree, but the {toy} did not fall.");
  w.say("{Friend.intro} was {place.in} too. \"What are you doing, {hero}?\" asked {friend}.",
        "{Friend.intro} saw {hero} and came to help.");
  w.say("\"My {toy} is up in the tree,\" said {hero}. \"I am too small to reach it.\"",
        "\"The {toy} is too high for me,\" said {hero}.");
  w.say("\"I am too small too,\" said {friend}. \"But together we are tall!\"",
        "{Friend} looked up and said, \"We can do it together.\"");
  w.paragraph();
  w.say("{Friend} climbed on {hero}'s back. {Friend.he} reached up and got the {toy}.",
        "{Hero} stood on {friend}'s back. {He} reached up and up and got the {toy}.",
        "They both shook the tree very hard. The {toy} fell down, and {friend} caught it.");
  w.say("\"We did it!\" they shouted.", "\"Hooray!\" said {hero}. \"Thank you, {friend}!\"");
  w.say("Then {hero} and {friend} {toy.played} together.",
        "\"Now we can {toy.play} together,\" said {hero}.");
  w.say("They learned that it is good to work together.",
        "{Hero} learned that two friends can do more than one.", "");
  if (w.chance(50)) close_together(w);
}

void the_race(StoryWriter& w) {
  const bool animals = w.chance(60);
  cast(w, {animals ? an_animal : a_child, a_friend, a_place, a_day, two_spots});
  if (animals) {
    set_kind(w, "hero", w.pick(std::array{"turtle", "duck", "pig", "bear", "frog"}));
    set_kind(w, "friend", w.pick(std::array{"bunny", "fox", "cat", "puppy", "squirrel"}));
  }
  introduce_hero(w);
  w.say("{He} was not very fast, but {he} never gave up.", "{Hero} was slow, but {he} was kind.",
        "{He} could not run very fast.");
  w.say("{His} friend {friend} was very fast.",
        "{Hero} had a friend named {friend}. {Friend} could run like the wind.");
  w.paragraph();
  w.say("{Day}, there was a big race {place.in}.",
        "{Day}, {friend} said, \"Let us have a race {place.in}!\"");
  w.say("\"I am the fastest! I will win,\" said {friend}.",
        "\"You are too slow, {hero}. You can not win,\" said {friend}.");
  w.say("\"I will try my best,\" said {hero}.", "\"Maybe not, but I will try,\" said {hero}.");
  w.say("One, two, three, go! {Friend} ran away very fast.",
        "The race began. {Friend} ran so fast that {hero} could not see {friend.him} anymore.");
  w.paragraph();
  if (w.chance(50)) {
    w.say("{Friend} looked back. {Hero} was far behind. \"I have time for a nap,\" said {friend}.",
          "Soon {friend} was tired. \"I can rest now. {Hero} is so slow,\" {friend.he} said.");
    w.say("{Friend.he} lay down {spot} and fell asleep.",
          "{Friend} sat down {spot} and closed {friend.his} eyes.");
    w.say("{Hero} walked on and on. {He} did not stop.",
          "{Hero} came by and saw {friend} asleep {spot}. {Hero} did not stop.");
    w.say("When {friend} woke up, it was too late. {Hero} had won the race!",
          "{Friend} woke up and ran, but {hero} was already there.");
    w.paragraph();
    w.say("\"You won, {hero}! I am sorry that I laughed at you,\" said {friend}.",
          "{Friend} said, \"You never gave up, {hero}. You are a good runner.\"");
    w.say("{Friend} learned that it is not enough to be fast.",
          "{Hero} learned that it is good to never give up.",
          "\"It was a fun race,\" said {hero}. {He} was not angry.");
  } else {
    w.say("But then {friend} fell over a [stone|root|log]. \"Ouch! My leg hurts!\" cried {friend}.",
          "But {friend} did not look where {friend.he} ran. {Friend.he} fell into the mud.");
    w.say("{Hero} could run on and win the race. But {he} stopped.", "{Hero} saw {friend} and stopped.");
    w.say("\"Are you okay, {friend}?\" asked {hero}. {He} helped {friend} to get up.",
          "\"Take my hand, {friend},\" said {hero}.");
    w.say("They walked to the end of the race together.",
          "{Friend} held on to {hero}, and they went on together.");
    w.paragraph();
    w.say("\"You could have won, but you helped me,\" said {friend}. \"Thank you, {hero}.\"",
          "\"I was not nice to you, but you helped me. I am sorry,\" said {friend}.");
    w.say("\"A friend is better than a prize,\" said {hero}.", "\"You are my friend,\" said {hero}.");
  }
  if (w.chance(60)) close_together(w);
}

constexpr Plot kPlots[] = {lost_and_found, sharing_a_toy, sharing_food,    new_friend,
                           swapping,       sick_friend,   stuck_in_a_tree, the_race};

}  // namespace

std::span<const Plot> friend_plots() {
  return kPlots;
}

}  // namespace storytape
