// Plots at home and with the family.
#include <array>

#include "train/corpus_plots.h"
#include "train/corpus_words.h"

namespace storytape {
namespace {

void mistake_and_apology(StoryWriter& w) {
  cast(w, {a_hero, a_grown_up, two_rooms, a_day});
  struct Accident {
    const char *adjective, *noun;  // what is spoiled
    const char* care;
    const char* before;
    const char* accident;
    const char* repair;
  };
  constexpr Accident kAccidents[] = {
      {"[blue|white|old|tall]", "vase", "{Grown} had {thing.a}. {Grown} loved the {thing} very much.",
       "{hero} played with a ball in the house",
       "The ball hit the {thing}. Crash! The {thing} fell down and broke.",
       "They put the {thing} together with glue."},
      {"[white|soft|yellow|new]", "rug", "{Grown} had {thing.a}. It was very clean.",
       "{hero} was painting in the living room",
       "{His} elbow hit the paint. Splash! Now there was a big spot on the {thing}.",
       "They washed the {thing} until it was clean again."},
      {"[big|pink|white|tall]", "cake", "{Grown} made {thing.a} for a party.",
       "{hero} smelled the {thing} and was very hungry",
       "{He} took a little bite. Then {he} took one more. Soon the {thing} was gone.",
       "They baked a new cake together."},
      {"[silver|little|old|shiny]", "key", "{Grown} had {thing.a} for the garden gate.",
       "{hero} took the {thing} to play pirate",
       "But then the {thing} fell into the tall grass, and {he} lost it.",
       "They looked in the grass together and found the {thing}."},
      {"[red|yellow|white|tall]", "flowers", "{Grown} had some {thing} in the garden.",
       "{hero} ran through the garden",
       "{He} did not look down and stepped on the {thing}. They were all flat.",
       "They put new seeds in the ground together."},
      {"[red|blue|big|pretty]", "cup", "{Grown} had {thing.a} that was very old.",
       "{hero} wanted to drink from the {thing}",
       "But the {thing} was too heavy. It fell on the floor and broke.",
       "They put the {thing} together with glue."},
  };
  const Accident& a = w.pick(kAccidents);
  set_thing(w, "thing", a.adjective, a.noun);
  open_story(w);
  w.say(a.care);
  w.say("\"Please be careful with the {thing}, {hero},\" said {grown}.",
        "{Grown} said, \"Do not touch the {thing}, {hero}.\"", "");
  w.paragraph();
  w.set("before", a.before);
  w.say("{Day}, {before}.", "{Day}, when {grown} was not there, {before}.");
  w.say(a.accident);
  w.say("\"Oh no!\" said {hero}.", "{Hero} was scared. \"What have I done?\" {he} said.",
        "{Hero} did not know what to do.");
  w.say("{He} ran away and hid {room}.", "{He} was afraid and hid {room}.");
  w.paragraph();
  w.say("Soon {grown} came home. \"What happened to my {thing}?\" {grown.he} asked.",
        "{Grown} came in and looked for the {thing}. \"What happened?\" {grown.he} asked.");
  w.say("{Hero} wanted to say nothing. But {he} felt bad.",
        "{Hero} could hear {grown}. {His} tummy felt funny, and {he} was sad.",
        "{Hero} thought about it. {He} did not want to lie.");
  w.say("{He} came out and said, \"It was me, {grown.call}. I am very sorry.\"",
        "{He} went to {grown} and said, \"I did it. I am sorry, {grown.call}.\"");
  w.paragraph();
  w.say("{Grown} was sad about the {thing}, but {grown.he} was not angry.",
        "{Grown} sat down next to {hero}.", "{Grown} gave {hero} a hug.");
  w.say("\"Thank you for telling the truth,\" {grown.he} said.",
        "\"You told the truth, and that was brave,\" said {grown}.",
        "\"I am glad that you told me,\" said {grown}. \"We can fix it.\"");
  w.say(a.repair);
  w.say("{Hero} learned that it is good to tell the truth.", "From then on, {hero} was more careful.",
        "{Hero} felt much better, because {he} had told the truth.",
        "{Hero} was glad that {he} did not lie.");
}

void rainy_day(StoryWriter& w) {
  cast(w, {a_hero, a_friend, a_grown_up, two_toys, a_place, two_rooms, a_day});
  open_story(w);
  w.say("{He} had {toy.a} and wanted to {toy.play} {place.in}.",
        "{Grown} had promised to go {place.to} with {him}.");
  w.paragraph();
  w.say("{Day}, {hero} put on {his} shoes to go {place.to}.", "{Hero} was ready to go {place.to}.");
  w.say("But then {he} heard a sound. Drip, drop, drip, drop! It was raining.",
        "But dark clouds came, and it began to rain.", "But when {he} opened the door, it was raining hard.");
  w.say("\"We can not go {place.to} now,\" said {grown}.",
        "\"It is too wet {place.in} today,\" said {grown}.");
  w.say("{Hero} was sad. {He} looked out of the window.", "{Hero} sat by the window and was sad.",
        "\"I do not like the rain,\" said {hero}.");
  w.paragraph();
  switch (w.below(3)) {
    case 0:
      w.say("Then {grown} said, \"We can make a fort!\"",
            "\"I have an idea,\" said {grown}. \"Let us build a fort.\"");
      w.say("They took two chairs and a big blanket. {Hero} put {his} pillow inside.",
            "They put a big blanket over the table. It looked like a little house.");
      w.say("They sat in the fort, and {grown} told a story about a [dragon|brave mouse|princess|pirate].",
            "{Hero} crawled into the fort with {other.a}. It was dark and cozy.");
      break;
    case 1:
      w.say("There was a knock at the door. It was {friend.intro}!",
            "Then {friend.intro} came to the house. {Friend.he} was very wet.");
      w.say("{Friend} had {other.a}. \"Let us {other.play}!\" said {friend}.",
            "\"I brought my {other},\" said {friend}.");
      w.say("{Hero} and {friend} {other.played} all morning. {Hero} forgot about the rain.",
            "They {other.played}, and then they played hide and seek. {Friend} hid {room}.");
      break;
    default:
      w.say("Then {grown} gave {hero} a pair of yellow boots.",
            "\"Do you want to jump in the puddles?\" asked {grown}.");
      w.say("{Hero} put on {his} boots and ran outside. Splash! {He} jumped into a big puddle.",
            "They went out into the rain. {Hero} jumped in every puddle. Splash, splash!");
      w.say("{Grown} jumped too, and they both got wet. They laughed and laughed.",
            "\"Rain is fun!\" shouted {hero}.");
  }
  w.paragraph();
  w.say("After a while, the rain stopped, and the sun came out.", "Then the rain stopped.",
        "At last, it did not rain anymore.");
  w.say("There was a big rainbow in the sky.", "A beautiful rainbow was in the sky.",
        "{Hero} saw a rainbow over the houses.");
  w.say("\"Look, {grown.call}! Red, yellow, green and blue!\" said {hero}.",
        "\"It is so pretty,\" said {hero}.");
  w.say("Now {hero} liked rainy days too.", "{Hero} learned that a rainy day can be a good day.",
        "\"I hope it rains again tomorrow,\" said {hero}, and {grown} laughed.");
}

void too_much(StoryWriter& w) {
  cast(w, {a_hero, a_friend, a_grown_up, a_day});
  open_story(w);
  w.set("treat", w.fill("[cookies|cupcakes|pancakes|muffins|waffles|buns]"));
  w.set("color", w.fill("[red|blue|yellow|green|white]"));
  w.say("{He} loved to eat {treat}.", "{His} favorite food was {treat}.");
  w.paragraph();
  w.say("{Day}, {grown} put a {color} bowl full of {treat} on the table.",
        "{Day}, {hero} saw a {color} bowl on the table. It was full of {treat}.");
  w.say("\"You can have two {treat}, {hero},\" said {grown}. \"The rest is for later.\"",
        "\"Do not eat too many {treat}, {hero},\" said {grown}.");
  w.say("{Hero} ate one. It was so good! {He} ate one more.",
        "{Hero} took one, and then one more. They were sweet.");
  w.say("When {grown} went out, {hero} ate another one. And another one. Soon the {color} bowl was empty.",
        "But {he} could not stop. {He} ate and ate until the {color} bowl was empty.");
  w.paragraph();
  w.say("Then {his} tummy began to hurt.", "Soon {hero} did not feel well. {His} tummy hurt.");
  w.say("{Friend.intro} came and asked, \"Do you want to play?\" But {hero} could not play.",
        "\"Come and play with me,\" said {friend.intro}. \"I can not,\" said {hero}. \"My tummy hurts.\"");
  w.say("{Friend} wanted to have some {treat} too, but there were none left.",
        "\"Where are the {treat}?\" asked {friend}. {Hero} looked at the floor.");
  w.paragraph();
  w.say(
      "{Grown} came back and saw the empty bowl. \"Did you eat all the {treat}, {hero}?\" {grown.he} asked. "
      "\"Yes, {grown.call}. I am sorry. I ate too many,\" said {hero}.",
      "\"What is wrong, {hero}?\" asked {grown}. \"I ate all the {treat},\" said {hero}. \"I am sorry.\"",
      "{Grown} came in and asked, \"Where are all the {treat}?\" \"I ate them all,\" said {hero}. \"Now my "
      "tummy hurts.\"");
  w.say("{Grown} gave {him} some warm tea and put {him} to bed.",
        "{Grown} gave {him} some water and told {him} to rest.");
  w.say("The next day, {hero} felt better. {He} helped {grown} make more {treat}.",
        "In the morning, {hero} was well again. {He} and {grown} made new {treat}.");
  w.say("This time, {he} ate only two and gave the rest to {friend}.",
        "{He} gave the first one to {friend}. \"Two are enough for me,\" {he} said.",
        "{Hero} and {friend} ate two each, and that was just right.");
}

void making_a_gift(StoryWriter& w) {
  cast(w, {a_hero, a_friend, a_grown_up, a_day});
  struct Gift {
    const char *adjective, *noun, *need, *first, *then, *use;
  };
  constexpr Gift kGifts[] = {
      {"[pretty|big|funny|colorful]", "card", "some paper and some crayons",
       "First, {he} drew a big sun and a house.", "Then {he} wrote, \"I love you, {grown.call}.\"",
       "{Grown} put the {gift} on the wall."},
      {"[chocolate|big|round|sweet]", "cake", "some eggs, some milk and some sugar",
       "First, {he} mixed everything in a bowl.", "Then {he} put it in the oven and waited.",
       "They all ate the {gift} together. It was very good."},
      {"[blue|red|pretty|long]", "necklace", "some string and some beads",
       "First, {he} put a red bead on the string.", "Then {he} put on more and more beads.",
       "{Grown} put the {gift} around {grown.his} neck."},
      {"[little|wooden|yellow|red]", "bird house", "some wood and some paint",
       "First, {he} put the wood together.", "Then {he} painted it and let it dry.",
       "{Grown} put the {gift} in a tree, and soon a bird moved in."},
      {"[warm|long|soft|green]", "scarf", "some soft wool", "First, {he} made it as long as {his} arm.",
       "Then {he} made it longer and longer.", "{Grown} wore the {gift} every day."},
  };
  const Gift& gift = w.pick(kGifts);
  set_thing(w, "gift", gift.adjective, gift.noun);
  w.set("need", gift.need);
  open_story(w);
  w.paragraph();
  w.say("Tomorrow was {grown}'s birthday.",
        "{Day}, {hero} remembered that it was almost {grown}'s birthday.");
  w.say("\"I want to give {grown.him} something special,\" said {hero}.",
        "{Hero} wanted to make a gift, but {he} did not know what to make.");
  w.say("{He} asked {friend.intro}. \"You can make {gift.a},\" said {friend}.",
        "\"You can make {gift.a},\" said {friend.intro}. \"That is a great idea,\" said {hero}.");
  w.say("{Hero} needed {need}.", "\"I need {need},\" said {hero}.");
  w.say("{Friend} helped {him} to find everything.", "{Friend} said, \"I will help you.\"",
        "{He} found everything in the house.");
  w.paragraph();
  w.say(gift.first);
  if (w.chance(50)) {
    w.say("It was not easy. \"I can not do it,\" said {hero}. \"Try again,\" said {friend}.",
          "At first it went wrong, and {hero} was sad. But {he} tried again.",
          "It took a long time, but {hero} did not give up.");
  }
  w.say(gift.then);
  w.say("At last, the {gift} was done.", "It was hard work, but then the {gift} was ready.",
        "\"It is done!\" said {hero}. {He} was proud of the {gift}.");
  w.paragraph();
  w.say("The next day, {hero} gave the {gift} to {grown}.",
        "In the morning, {hero} said, \"Happy birthday, {grown.call}!\" and gave {grown.him} the {gift}.");
  w.say(
      "\"Did you make this {gift.noun} for me?\" asked {grown}. \"Yes,\" said {hero}. \"{Friend} helped "
      "me.\"",
      "{Grown} smiled. \"What a beautiful {gift.noun}! Thank you, {hero},\" {grown.he} said.",
      "{Grown} was so happy that {grown.he} gave {hero} a big hug.");
  w.say(gift.use);
  w.say("It was the best gift of all, because {hero} had made it.",
        "{Hero} learned that a gift from the heart is the best gift.",
        "\"This is my best birthday,\" said {grown}.");
}

void messy_room(StoryWriter& w) {
  cast(w, {a_hero, a_friend, a_grown_up, two_toys, a_day});
  w.set("room", w.fill("[under the bed|behind the door|in the closet|behind the curtain|under the desk]"));
  open_story(w);
  w.say("But {he} did not like to clean {his} room.", "{His} room was always a mess.");
  w.say("There was {other.a} on the floor and {toy.a} {room}.",
        "{Other.a} lay on the floor, and {toy.a} was {room}.");
  w.paragraph();
  w.say("\"Please clean your room, {hero},\" said {grown}.",
        "Every day, {grown} said, \"You have to put your toys away, {hero}.\"");
  w.say("\"Later,\" said {hero}.", "\"I do not want to,\" said {hero}.", "But {hero} only wanted to play.");
  w.say("{Day}, {friend.intro} came to play.", "{Day}, {hero} heard a knock. It was {friend.intro}.");
  w.say("\"Can we {toy.play}?\" asked {friend}.", "\"Let us {toy.play},\" said {friend}.");
  w.say("{Hero} looked for the {toy}, but {he} could not find it in the mess.",
        "But {hero} did not know where the {toy} was.");
  w.paragraph();
  w.say("{Friend} took a step and fell over the {other}. \"Ouch!\" said {friend}.",
        "{Hero} fell over the {other} and hurt {his} knee.");
  w.say("\"Your room is too messy,\" said {friend}.", "\"We can not play in this mess,\" said {friend}.");
  w.say("{Hero} felt bad. \"I will clean it now,\" {he} said.",
        "\"You are right,\" said {hero}. \"It is time to clean up.\"");
  w.say(
      "{Friend} helped {him}. They put the [books|blocks|cars] on the shelf and the [socks|shirts] in the "
      "closet.",
      "They worked together. They put all the toys into a big box.");
  w.say("{Hero} looked {room}, and there was the {toy}!",
        "\"Look, here is the {toy}!\" said {friend}. It was {room}.");
  w.paragraph();
  w.say("Soon the room was clean.", "The room looked nice and big now.");
  w.say("{Grown} came in and smiled. \"Good job! I am proud of you,\" said {grown}.",
        "\"Wow, what a clean room!\" said {grown}.");
  w.say("Then {hero} and {friend} {toy.played}.", "Now they had room to play, and they {toy.played}.");
  w.say("From that day on, {hero} put {his} toys away every night.",
        "{Hero} learned that a clean room is good for playing.");
}

void strange_noise(StoryWriter& w) {
  cast(w, {a_child, a_grown_up});
  w.set("room", w.fill("[under the bed|behind the door|in the closet|behind the curtain|under the desk]"));
  struct Pet {
    const char *kind, *noise, *likes;
  };
  constexpr Pet kPets[] = {{"kitten", "meow", "some milk"},
                           {"puppy", "woof", "some water"},
                           {"mouse", "squeak", "some cheese"},
                           {"bird", "tweet", "some seeds"}};
  const Pet& pet = w.pick(kPets);
  set_thing(w, "pet", "[little|tiny|gray|white|brown|black]", pet.kind);
  w.set("noise", pet.noise);
  w.set("likes", pet.likes);
  w.set("pet.name", w.pick(std::array{"Snowy", "Button", "Biscuit", "Teddy", "Fluffy", "Star", "Honey"}));
  open_story(w);
  w.paragraph();
  w.say("One night, {hero} lay in bed. The room was dark.", "One night, {hero} could not sleep.",
        "One dark night, {hero} woke up.");
  w.say("Then {he} heard a strange noise {room}.", "There was a strange noise {room}.");
  w.say("\"What is that?\" {he} thought. {He} was scared.", "\"Is it a monster?\" {he} thought.",
        "{He} pulled the blanket over {his} head.");
  w.say("{He} called, \"{Grown.call}! {Grown.call}! There is something {room}!\"",
        "{He} ran to {grown}. \"There is a monster {room}!\" {he} said.");
  w.paragraph();
  w.say("{Grown} came with a light. \"Do not be afraid. Let us look together,\" {grown.he} said.",
        "{Grown} took {his} hand. \"We will look together,\" said {grown}.");
  w.say("They walked very slowly. {Hero} held {grown}'s hand.",
        "They were very quiet. Then they heard it again.");
  w.say("They looked {room}. There was {pet.a}!",
        "{Grown} looked {room} and laughed. \"Come and see, {hero},\" {grown.he} said. It was {pet.a}!");
  w.say("\"{Noise}, {noise},\" said the {pet}.", "\"{Noise}!\" said the {pet}.");
  w.say("It was not a monster at all.", "The {pet} was cold and scared too.", "The {pet} was all alone.");
  w.paragraph();
  w.say("{Hero} was not scared anymore.", "\"You are so small,\" said {hero}. \"I am not afraid of you.\"");
  w.say("{He} gave the {pet} {likes}.", "They gave the {pet} {likes} and a warm box to sleep in.");
  w.say(
      "\"Can I keep it, {grown.call}?\" asked {hero}. \"Yes,\" said {grown}. \"But you must take good care "
      "of it.\"",
      "\"May it stay with us?\" {hero} asked. {Grown} said yes.");
  w.say("{Hero} named the {pet} {pet.name}.", "\"Your name is {pet.name},\" said {hero}.");
  w.say("From then on, {pet.name} slept next to {his} bed every night.",
        "{Hero} and {pet.name} played together every day.",
        "When {hero} heard a noise at night, {he} smiled. It was only {pet.name}.");
}

constexpr Plot kPlots[] = {mistake_and_apology, rainy_day,  too_much,
                           making_a_gift,       messy_room, strange_noise};

}  // namespace

std::span<const Plot> home_plots() {
  return kPlots;
}

}  // namespace storytape
