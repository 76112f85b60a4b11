// Plots out in the world: wishes, helpers, journeys, finds.
#include <string_view>

#include "train/corpus_plots.h"
#include "train/corpus_words.h"

namespace storytape {
namespace {

void a_wish(StoryWriter& w) {
  cast(w, {a_hero, a_friend, a_grown_up, a_place, two_spots, a_day});
  struct Wish {
    const char *want, *got, *joy, *trouble;
  };
  constexpr Wish kWishes[] = {
      {"fly like a bird", "Suddenly, {hero} had two white wings.", "{He} flew over the trees and the houses.",
       "But the sky was cold, and no one was there to play with {him}."},
      {"be as tall as a tree", "Suddenly, {hero} began to grow. Soon {he} was as tall as a tree.",
       "{He} could see far away, as far as the sea.",
       "But {he} was too big for {his} house, and everyone ran away from {him}."},
      {"be as small as an ant", "Suddenly, everything got bigger. {Hero} was as small as an ant.",
       "{He} slid down a leaf and sat on a flower.",
       "But then it rained, and every drop was as big as {he} was."},
      {"swim like a fish", "Suddenly, {hero} had a green tail.",
       "{He} swam under the water and saw a big shell.",
       "But {he} could not run and jump anymore, and {he} missed {friend}."},
      {"eat cake all day", "Suddenly, there was cake everywhere.",
       "{He} ate cake in the morning and cake at night.",
       "But soon {his} tummy hurt, and {he} did not want any more cake."},
      {"stay awake all night", "That night, {hero} was not tired at all.",
       "{He} saw the moon and all the stars.", "But everyone else was asleep, and it was dark and lonely."},
  };
  const Wish& wish = w.pick(kWishes);
  w.set("want", wish.want);
  struct Giver {
    const char *adjective, *noun, *trouble, *help;
  };
  constexpr Giver kGivers[] = {
      {"[little|tiny|pretty]", "fairy", "Her wing was stuck in a spider web.",
       "{Hero} pulled the web apart, and the {giver} was free."},
      {"[blue|silver|magic]", "fish", "It was lying on the dry sand.",
       "{Hero} put the {giver} back into the water."},
      {"[tiny|shiny|golden]", "star", "It had fallen from the sky and could not get up.",
       "{Hero} picked up the {giver} and put it on a tall rock."},
      {"[friendly|green|young]", "dragon", "It had a thorn in its foot.",
       "{Hero} pulled out the thorn, and the {giver} smiled."},
  };
  const Giver& giver = w.pick(kGivers);
  set_thing(w, "giver", giver.adjective, giver.noun);
  if (giver.noun == std::string_view("fish")) a_place_by_water(w);
  introduce_hero(w);
  w.say("{His} best friend was {friend}.", "{He} had a friend named {friend}.",
        "{Friend} was {his} best friend.");
  w.say("{Hero} had a big wish. {He} wanted to {want}.", "{Hero} always wanted to {want}.",
        "Every night, {he} wished that {he} could {want}.");
  w.say("\"You are good just as you are,\" said {grown}.",
        "{Friend} laughed and said, \"You can not do that, {hero}.\"", "But {he} did not know how.");
  w.paragraph();
  w.say("{Day}, {hero} walked {place.to}. {He} saw {giver.a} {spot}.",
        "{Day}, {hero} was {place.in}. {He} heard a small voice {spot}. It was {giver.a}!");
  w.say(giver.trouble);
  w.say("\"Please help me,\" said the {giver}.", "\"Can you help me?\" asked the {giver}.");
  w.say(giver.help);
  w.say("\"Thank you, {hero}. Now you can have one wish,\" said the {giver}.",
        "\"You are kind,\" said the {giver}. \"I will give you a wish.\"");
  w.say("\"I want to {want}!\" said {hero}.", "\"I wish that I could {want},\" said {hero}.");
  w.paragraph();
  w.say(wish.got);
  w.say("\"Wow!\" said {hero}.", "It was magic!", "{Hero} could not believe it.");
  w.say(wish.joy);
  w.say("At first, it was a lot of fun.", "It was so much fun.", "{He} laughed out loud.");
  w.say(wish.trouble);
  w.say("{Hero} began to cry.", "{Hero} was sad. {He} wanted to go home.", "{Hero} was not happy anymore.");
  w.paragraph();
  w.say("{He} went back to the {giver} and said, \"Please take my wish back.\"",
        "Then {he} saw the {giver} again. \"I do not want to {want} anymore,\" said {hero}.");
  w.say("The {giver} nodded, and everything was as before.",
        "\"I understand,\" said the {giver}. Then the magic was over.");
  w.say("{Hero} ran home and hugged {grown}.", "{Hero} ran to {friend} and told {friend.him} everything.");
  w.say("{Hero} learned that {he} was good just as {he} was.", "Now {hero} was happy with what {he} had.",
        "\"It is good to be me,\" said {hero}.");
}

void the_helper(StoryWriter& w) {
  cast(w, {a_child, a_grown_up, a_place, two_spots, a_day});
  struct Animal {
    const char *adjective, *kind, *problem, *help, *later, *favor;
  };
  constexpr Animal kAnimals[] = {
      {"[little|blue|small]", "bird", "It had fallen out of its nest.",
       "{Hero} picked up the {animal} and put it back into the nest.",
       "{hero} walked too far and could not find the way home",
       "The {animal} flew in front of {him} and showed {him} the way."},
      {"[old|green|slow]", "turtle", "It was lying on its back and could not get up.",
       "{Hero} turned the {animal} over.", "{hero} fell into the river",
       "The {animal} swam to {him} and carried {him} to the land on its back."},
      {"[tiny|gray|brown]", "mouse", "Its tail was stuck under a stone.",
       "{Hero} lifted the stone, and the {animal} was free.",
       "{hero} dropped {his} house key into a small hole",
       "The {animal} went into the hole and came back with the key."},
      {"[tiny|black|red]", "ant", "It was about to fall into the water.",
       "{Hero} held out a leaf, and the {animal} climbed onto it.",
       "{hero} dropped all {his} beads in the grass",
       "The {animal} came with all its friends, and they found every bead."},
      {"[young|gray|brown]", "dog", "It was in a deep hole and could not get out.",
       "{Hero} put a long log into the hole, and the {animal} climbed out.",
       "the wind took {his} hat and blew it far away",
       "The {animal} ran after the hat and brought it back to {him}."},
      {"[white|little|brown]", "rabbit", "Its foot was stuck in the fence.",
       "{Hero} pulled the fence apart, and the {animal} was free.",
       "{hero} was very hungry and far from home", "The {animal} showed {him} a bush full of sweet berries."},
  };
  const Animal& a = w.pick(kAnimals);
  set_thing(w, "animal", a.adjective, a.kind);
  w.set("later", a.later);
  open_story(w);
  w.paragraph();
  w.say("{Day}, {hero} was playing {place.in}.", "{Day}, {hero} walked {place.to} with {grown}.");
  w.say("{He} heard a small sound {spot}.", "\"Help! Help!\" someone cried.",
        "Then {he} saw something move {spot}.");
  w.say("It was {animal.a}.", "{He} looked {spot} and saw {animal.a}.");
  w.say(a.problem);
  w.say("\"Do not be afraid. I will help you,\" said {hero}.", "\"Poor {animal.noun}!\" said {hero}.",
        "{Hero} felt sorry for the {animal}.");
  w.say(a.help);
  w.say("\"Thank you! I will never forget you,\" said the {animal}.",
        "The {animal} looked at {him} and said, \"Thank you. One day I will help you too.\"");
  w.say("{Hero} laughed. \"You are only {animal.a}. How can you help me?\"", "{Hero} waved and went home.",
        "\"You are welcome,\" said {hero}.");
  w.paragraph();
  w.say("A few days later, {later}.", "The next week, {later}.", "Some time later, {later}.");
  w.say("{He} was scared and called for help.", "\"What can I do now?\" {he} cried.", "{He} began to cry.");
  w.say("The {animal} heard {him} and came at once.", "Then {he} heard a voice. It was the {animal}!");
  w.say("\"You helped me, and now I will help you,\" it said.",
        "\"Do not worry, {hero}. I am here,\" said the {animal}.");
  w.say(a.favor);
  w.paragraph();
  w.say("\"Thank you, {animal.noun}! You are a true friend,\" said {hero}.",
        "{Hero} was so happy. \"You saved me!\" {he} said.");
  w.say("{Hero} told {grown} about the {animal}.", "From that day on, {hero} and the {animal} were friends.");
  w.say("{Hero} learned that when you help others, they will help you too.",
        "{Hero} learned that even small friends can be a big help.",
        "\"It is good to be kind,\" said {grown}.");
}

void lost_way(StoryWriter& w) {
  cast(w, {a_hero, a_grown_up, a_day});
  struct Guide {
    const char *adjective, *kind, *place, *advice;
  };
  constexpr Guide kGuides[] = {
      {"[wise|old|big]", "owl", "in a tree", "Follow the river. It goes to the houses."},
      {"[slow|old|green]", "turtle", "on a stone", "Walk to the big rock and then go down the hill."},
      {"[red|young|friendly]", "fox", "in the grass", "Go to the tall tree and then follow the path."},
      {"[gray|little|friendly]", "squirrel", "on a log", "Follow the path with the white stones."},
      {"[brown|happy|funny]", "frog", "by a pond", "Go around the pond and then over the bridge."},
  };
  const auto [first, second] = w.pick_two(kGuides);
  set_thing(w, "guide", first.adjective, first.kind);
  set_thing(w, "other", second.adjective, second.kind);
  set_thing(w, "lure", "[blue|yellow|white|orange]", "[butterfly|feather|balloon]");
  open_story(w);
  w.say("\"Do not go into the forest alone,\" said {grown}.",
        "{Grown} always said, \"Stay near the house, {hero}.\"");
  w.paragraph();
  w.say("{Day}, {hero} saw {lure.a}.", "{Day}, {lure.a} flew by.");
  w.say("The {lure} flew over the fence. {Hero} ran after it.",
        "It was so pretty! {Hero} wanted to catch the {lure}.");
  w.say("{He} ran and ran, deep into the forest.", "{He} followed the {lure} into the forest.");
  w.say("Then the {lure} was gone. There were trees everywhere.",
        "Then {he} stopped. {He} could not see the {lure}, and {he} could not see the house.");
  w.say("\"Where am I?\" said {hero}. {He} was lost.", "{Hero} was lost. {He} began to cry.",
        "\"I want to go home,\" cried {hero}.");
  w.paragraph();
  if (w.chance(60)) {
    w.say("{Hero} met {other.a}. \"Do you know the way home?\" {he} asked.",
          "{He} saw {other.a}. \"Can you help me?\" asked {hero}.");
    w.say("\"No, I do not know,\" said the {other}. \"Ask the {guide}.\"",
          "\"I am sorry,\" said the {other}. \"But the {guide} may know it.\"");
    w.say("{Hero} walked on and found the {guide}.", "So {hero} went to look for the {guide}.");
  } else {
    w.say("Then {hero} saw {guide.a}.", "Then {he} met {guide.a}.",
          "{Hero} heard a voice. It was {guide.a}.");
  }
  w.set("guide.place", first.place);
  w.set("advice", first.advice);
  w.say("The {guide} sat {guide.place}. \"Why are you sad?\" it asked.",
        "The {guide} was sitting {guide.place}. \"Are you lost?\" it asked.");
  w.say("\"I can not find my house,\" said {hero}.",
        "\"I ran after {lure.a}, and now I am lost,\" said {hero}.");
  w.say("The {guide} said, \"{advice}\"", "\"That is easy,\" said the {guide}. \"{advice}\"");
  w.say("\"Thank you!\" said {hero}.", "{Hero} thanked the {guide}.");
  w.paragraph();
  w.say("{Hero} did what the {guide} had said. Soon {he} saw {his} house.",
        "{Hero} walked and walked. At last, {he} saw a light. It was {his} house!");
  w.say("{Grown} ran to {him} and held {him} tight.",
        "{Grown} was at the door. \"{Hero}! I was so worried,\" said {grown}.");
  w.say("\"I am sorry, {grown.call}. I will not run away again,\" said {hero}.",
        "\"I got lost, but the {guide} helped me,\" said {hero}.");
  w.say("{Grown} gave {him} some warm soup, and {hero} was happy to be home.",
        "{Hero} learned to stay near the house.", "From that day on, {hero} listened to {grown}.");
}

void found_treasure(StoryWriter& w) {
  cast(w, {a_hero, a_friend, a_place, two_spots, a_day});
  struct Owner {
    const char *adjective, *noun, *why, *reward;
  };
  constexpr Owner kOwners[] = {
      {"[old|kind|poor]", "woman", "It was a gift from my mother",
       "The {owner} gave them each a big cookie."},
      {"[old|kind|poor]", "man", "I have looked for it all day",
       "The {owner} told them a story about a pirate."},
      {"[tall|friendly|young]", "king", "I lost it when I rode my horse",
       "The {owner} let them ride on his horse."},
      {"[good|pretty|young]", "queen", "It belongs to my little girl",
       "The {owner} asked them to come to a party."},
  };
  const Owner& owner = w.pick(kOwners);
  set_thing(w, "owner", owner.adjective, owner.noun);
  w.set("why", owner.why);
  set_thing(w, "box", "[little|old|brown|wooden|black]", "box");
  set_thing(w, "gem", "[golden|silver|shiny]", "[ring|necklace|watch|coin|crown]");
  open_story(w);
  w.paragraph();
  w.say("{Day}, {hero} and {friend} played {place.in}.",
        "{Day}, {hero} went {place.to} with {his} friend {friend}.");
  w.say("{Hero} saw something {spot}. It was {box.a}.", "{Friend} found {box.a} {spot}.",
        "They dug in the ground {spot} and found {box.a}.");
  w.say("\"What is inside?\" asked {friend}.", "\"Maybe it is a treasure!\" said {hero}.");
  w.say("They opened the {box}. Inside was {gem.a}!", "{Hero} opened the {box} and saw {gem.a}.");
  w.paragraph();
  w.say("\"We are rich!\" said {friend}. \"We can keep it.\"",
        "\"It is so pretty. I want to keep it,\" said {friend}.");
  w.say("\"But it is not ours,\" said {hero}. \"Someone must be sad.\"",
        "{Hero} wanted to keep the {gem} too. But it was not right.");
  w.say("{Friend} thought about it. \"You are right, {hero},\" {friend.he} said.",
        "\"Let us find out who lost it,\" said {hero}.");
  w.say("{Hero} put the {gem} back into the {box}.", "They closed the {box} and took it with them.");
  w.paragraph();
  w.say("They walked down the road and met {owner.a}. The {owner} was crying.",
        "Soon they saw {owner.a} who looked {spot2}.");
  w.say("\"I lost {gem.a},\" said the {owner}. \"{why}.\"",
        "\"Have you seen {gem.a}?\" asked the {owner}. \"{why}.\"");
  w.say("\"Here it is!\" said {hero}, and {he} held up the {box}.",
        "{Hero} gave the {box} to the {owner}. \"We found it {spot},\" {he} said.");
  w.say(
      "The {owner} opened the {box} and took out the {gem}. \"Thank you! You are so honest,\" said the "
      "{owner}.");
  w.say(owner.reward);
  w.say("{Hero} and {friend} learned that it is good to be honest.",
        "\"That is better than {gem.a},\" said {friend}.", "");
  if (w.chance(60)) close_together(w);
}

void the_picnic(StoryWriter& w) {
  cast(w, {a_hero, a_friend, a_grown_up, a_food, a_place, two_spots, a_day});
  struct Guest {
    const char *adjective, *noun, *babies;
  };
  constexpr Guest kGuests[] = {{"[thin|brown|gray]", "dog", "with three puppies"},
                               {"[black|white|thin]", "cat", "with two kittens"},
                               {"[little|red|gray]", "squirrel", "with its babies"},
                               {"[small|gray|brown]", "rabbit", "with four baby rabbits"}};
  const Guest& guest = w.pick(kGuests);
  set_thing(w, "guest", guest.adjective, guest.noun);
  w.set("babies", guest.babies);
  open_story(w);
  w.paragraph();
  w.say("{Day}, {hero} and {grown} made a picnic.",
        "{Day}, {grown} said, \"It is a nice day for a picnic.\"");
  w.say("They put {food.a} and some bread in a basket.", "{Hero} put {food.a} and some cheese in a basket.");
  w.say("{Friend.intro} came with them. They walked {place.to}.",
        "They went {place.to}, and {friend.intro} came too.");
  w.say("{Grown} put a blanket on the ground {spot}.", "They sat down on a blanket {spot}.");
  w.say("But first, {hero} and {friend} wanted to play tag. They ran and laughed.",
        "\"Let us play before we eat,\" said {friend}. So they played tag.");
  w.paragraph();
  w.say("When they came back, the {food} was gone!",
        "Then {hero} looked into the basket. The {food} was not there!");
  w.say("\"Who took my {food}?\" asked {hero}. {He} was angry.",
        "\"Did you eat the {food}?\" asked {hero}. \"No,\" said {friend}.");
  w.say("{Friend} saw some crumbs in the grass. \"Look, we can follow them!\" {friend.he} said.",
        "\"There are crumbs on the ground,\" said {friend}. \"Let us see where they go.\"");
  w.say("The crumbs went on and on. At last, they looked {spot2}.",
        "They followed the crumbs and came to a place {spot2}.");
  w.say("There was {guest.a} {babies}. They were eating the {food}.",
        "They saw {guest.a} {babies}. The {food} was almost gone.");
  w.paragraph();
  w.say("{Hero} was not angry. \"They are so hungry,\" {he} said.",
        "\"Poor {guest.noun}!\" said {hero}. \"You only wanted to feed your babies.\"");
  w.say("{He} ran to the basket and brought the rest of the food. {He} gave it to the {guest}.",
        "{Friend} got the basket, and {hero} gave some more food to the {guest}.");
  w.say("The {guest} looked happy.", "The babies ate and ate, and then they fell asleep.");
  w.say("\"You have a kind heart, {hero},\" said {grown}.",
        "\"That was very kind,\" said {grown}. \"We can eat at home.\"");
  w.say("After that, {hero} always brought some food for the {guest}.",
        "{Hero} learned that it feels good to give.",
        "On the way home, {hero} was hungry, but {he} was happy.");
  if (w.chance(30)) close_together(w);
}

constexpr Plot kPlots[] = {a_wish, the_helper, lost_way, found_treasure, the_picnic};

}  // namespace

std::span<const Plot> world_plots() {
  return kPlots;
}

}  // namespace storytape
