// Plots about growing: seeds, skills, courage, another year.
#include <array>

#include "train/corpus_plots.h"
#include "train/corpus_words.h"

namespace storytape {
namespace {

void a_fear(StoryWriter& w) {
  cast(w, {a_hero, a_friend, a_grown_up, a_day});
  struct Fear {
    const char *of, *why, *face, *helps, *brave, *after;
  };
  constexpr Fear kFears[] = {
      {"the dark", "At night, {he} thought that there were monsters in {his} room.",
       "One night, it was time for bed, and the light went out.",
       "{Helper} gave {him} a little lamp that looked like a moon.",
       "{He} looked around the room. There were no monsters, only {his} toys.",
       "{Hero} slept well all night."},
      {"deep water", "{He} thought that {he} would sink like a stone.",
       "{Day}, they all went to the lake to swim.",
       "{Helper} held {his} hands and said, \"Kick your legs, {hero}.\"",
       "{He} kicked and kicked. Then {he} was swimming!", "{Hero} did not want to get out of the water."},
      {"thunder", "When it was loud, {he} hid under {his} bed.",
       "One evening, there was a big storm. Boom! went the thunder.",
       "{Helper} sat down with {him} and said, \"Let us count until the next boom.\"",
       "{He} counted, one, two, three. Boom! Now it was like a game.",
       "When the storm was over, {hero} was almost sad."},
      {"the big slide", "It was so high that {he} could not look down.",
       "{Day}, they all went to the playground.", "{Helper} said, \"I will wait for you at the bottom.\"",
       "{He} climbed up and sat down. Then {he} let go. Whee!", "{Hero} went down the slide ten more times."},
      {"dogs", "{He} thought that every dog would bite {him}.",
       "{Day}, a big brown dog came down the street.",
       "{Helper} said, \"This dog is nice. Let it smell your hand.\"",
       "{He} held out {his} hand. The dog licked it, and it was soft and wet.",
       "{Hero} petted the dog and laughed."},
      {"bees", "When {he} heard a buzz, {he} ran away.", "{Day}, a bee sat down on a flower next to {him}.",
       "{Helper} said, \"It only wants to drink. If you are still, it will not hurt you.\"",
       "{He} stood very still. The bee drank from the flower and flew away.", "{Hero} waved to the bee."},
  };
  const Fear& fear = w.pick(kFears);
  const bool friend_helps = w.chance(50);
  w.set("helper", friend_helps ? "{friend}" : "{grown}");
  w.set("helper.intro", friend_helps ? "{friend.intro}" : "{grown}");
  w.set("of", fear.of);
  open_story(w);
  w.say("But {he} was afraid of {of}.",
        "There was only one thing that {he} did not like. {He} was afraid of {of}.",
        "{Hero} was scared of {of}.");
  w.say(fear.why);
  w.paragraph();
  w.say(fear.face);
  w.say("{Hero} wanted to run away.", "{Hero} began to shake.", "\"I am scared,\" said {hero}.",
        "{Hero} closed {his} eyes.");
  w.say("{Helper.intro} saw that {he} was afraid.", "\"What is wrong, {hero}?\" asked {helper.intro}.");
  w.say("\"I am afraid of {of},\" {hero} said in a small voice.", "\"I do not like {of},\" said {hero}.");
  w.say("{Helper} did not laugh. \"I was afraid of {of} too,\" said {helper}.",
        "\"Everyone is afraid sometimes,\" said {helper}. \"I am here with you.\"");
  w.paragraph();
  w.say(fear.helps);
  w.say("{Hero} took a deep breath. \"I will try,\" {he} said.",
        "\"I can do it,\" said {hero}. \"I can do it!\"",
        "{Hero} was still afraid, but {he} wanted to be brave.");
  w.say(fear.brave);
  w.say("\"It is not so bad!\" said {hero}.", "\"I did it!\" shouted {hero}.",
        "{Hero} laughed. {He} was not afraid anymore.");
  w.paragraph();
  w.say("\"You are very brave, {hero},\" said {helper}.",
        "{Helper} hugged {him} and said, \"I am proud of you.\"");
  w.say(fear.after);
  w.say("{Hero} learned that you can be afraid and brave at the same time.",
        "From that day on, {hero} was not afraid of {of} anymore.",
        "{Hero} was proud, because {he} had been so brave.");
}

void growing(StoryWriter& w) {
  cast(w, {a_hero, a_friend, a_grown_up, a_day});
  struct Plant {
    const char *adjective, *noun, *end;
  };
  constexpr Plant kPlants[] = {
      {"[tall|yellow|big]", "sunflower", "The {plant} looked at the sun, and the bees came to visit it."},
      {"[orange|big|round]", "pumpkin", "They made a big pot of pumpkin soup and shared it with everyone."},
      {"[red|pink|white]", "rose", "{Hero} gave the {plant} to {grown}."},
      {"[sweet|red|big]", "strawberry", "{Hero} cut the {plant} in two and shared it with {friend}."},
      {"[long|orange|big]", "carrot",
       "{Hero} pulled and pulled, and {friend} helped {him}. Pop! Out came the {plant}."},
  };
  const Plant& plant = w.pick(kPlants);
  set_thing(w, "plant", plant.adjective, plant.noun);
  open_story(w);
  w.paragraph();
  w.say("{Day}, {grown} gave {him} a small seed.", "{Day}, {hero} found a small seed on the ground.");
  w.say("\"What is this?\" asked {hero}. \"It is a {plant.noun} seed,\" said {grown}.",
        "\"If you are patient, it will become a {plant.noun},\" said {grown}.");
  w.say("{Hero} made a hole in the ground and put the seed in it.",
        "{Hero} put the seed in the garden and gave it some water.");
  w.say(
      "{Friend.intro} came and asked, \"What are you doing?\" \"I am growing a {plant.noun},\" said {hero}.",
      "{Hero} told {friend.intro} about the seed.");
  w.paragraph();
  w.say("Every day, {hero} gave water to the seed. But nothing happened.",
        "{Hero} came back every morning, but {he} saw only the brown ground.");
  w.say("\"It is not growing,\" said {hero}. {He} was sad.", "\"Maybe it is sleeping,\" said {friend}.",
        "{Friend} said, \"I do not think that it will grow.\"");
  w.say("\"You have to wait,\" said {grown}. \"Good things take time.\"",
        "\"Be patient, {hero},\" said {grown}.");
  w.say("So {hero} waited. The rain came, and the sun came.",
        "{Hero} did not give up. {He} sang a song for the seed every day.");
  w.paragraph();
  w.say("Then, one morning, {he} saw a little green leaf!",
        "One day, something green came out of the ground.");
  w.say("\"Look, {friend}! It is growing!\" shouted {hero}.",
        "{Hero} was so happy that {he} danced around it.");
  w.say("It got bigger and bigger. At last, there was {plant.a}.", "After many weeks, {hero} had {plant.a}.");
  w.say("\"It is beautiful,\" said {friend}.",
        "\"You were right, {grown.call}. It was good to wait,\" said {hero}.",
        "{Hero} was very proud of the {plant}.");
  w.say(plant.end);
  w.say("{Hero} learned that good things take time.", "{Hero} kept one little seed for the next year.",
        "{Hero} learned to be patient.");
}

void practice(StoryWriter& w) {
  cast(w, {a_hero, a_friend, a_grown_up, a_place, a_day});
  struct Skill {
    const char *skill, *fail, *tip, *done;
  };
  constexpr Skill kSkills[] = {
      {"ride a bike", "{He} fell off the bike and hurt {his} knee.", "Look ahead and keep your feet moving.",
       "{He} rode all the way {place.to} and back."},
      {"whistle", "{He} blew and blew, but only air came out.", "Make your lips round and blow softly.",
       "A clear sound came out, like the song of a bird."},
      {"do a cartwheel", "{He} fell over and rolled in the grass.",
       "Keep your legs straight and look at your hands.", "{He} went over like a wheel, once and twice."},
      {"jump rope", "{His} feet got stuck in the rope.", "Count out loud when you jump.",
       "{He} jumped ten times without a stop."},
      {"catch a ball", "The ball hit {his} nose and rolled away.", "Keep your eyes on the ball.",
       "{He} caught the ball with both hands."},
      {"stand on one leg", "{He} fell over like a tree.", "Look at one thing that does not move.",
       "{He} stood as still as a flower and counted to twenty."},
  };
  const Skill& skill = w.pick(kSkills);
  w.set("skill", skill.skill);
  w.set("tip", skill.tip);
  open_story(w);
  w.say("{He} wanted to learn to {skill}.",
        "There was one thing that {he} could not do. {He} could not {skill}.");
  w.say("{His} friend {friend} could {skill} very well.",
        "{Friend.intro} could {skill}, and {hero} wanted to do it too.");
  w.paragraph();
  w.say("{Day}, {hero} went {place.to} to try it.", "{Day}, {hero} said, \"Today I will {skill}!\"");
  w.say(skill.fail);
  w.say("{He} tried again, but it went wrong again.", "{He} tried again and again.");
  w.say("\"I can not do it!\" cried {hero}. {He} was angry.",
        "\"It is too hard,\" said {hero}. {He} wanted to give up.");
  w.paragraph();
  const bool friend_helps = w.chance(60);
  w.set("helper", friend_helps ? "{friend}" : "{grown}");
  w.say("{Helper} sat down next to {hero}. \"It was hard for me too,\" said {helper}.",
        "{Helper} said, \"Do not give up, {hero}. You need to practice.\"");
  w.say("\"Can you show me?\" asked {hero}. \"Yes,\" said {helper}. \"{tip}\"",
        "\"I will tell you a secret,\" said {helper}. \"{tip}\"");
  w.say("{Hero} tried it every day. Each day, it went a little better.",
        "The next day, {hero} tried again. And the day after that.");
  w.paragraph();
  w.say("Then, one morning, it worked!", "And then, at last, {he} did it!",
        "On the third day, {hero} did it.");
  w.say(skill.done);
  w.say("\"Look at me! I can {skill}!\" shouted {hero}.", "\"I did it! I did it!\" {he} shouted.");
  w.say("{Helper} clapped and said, \"I knew that you could do it.\"",
        "\"Well done, {hero}!\" said {helper}.");
  w.say("{Hero} learned that you should never give up.", "Now {hero} and {friend} could {skill} together.",
        "{Hero} was proud, because {he} had worked so hard.");
  if (w.chance(30)) close_alone(w);
}

void surprise(StoryWriter& w) {
  cast(w, {a_hero, a_friend, a_grown_up, a_toy, a_place, two_spots});
  set_thing(w, "cake", "[big|chocolate|pink|white]", "cake");
  w.set("color", w.pick(std::array{"red", "blue", "yellow", "green"}));
  open_story(w);
  w.say("{He} wanted to have {toy.a} for {his} birthday.", "\"I wish that I had {toy.a},\" {he} often said.");
  w.paragraph();
  w.say("One morning, {hero} woke up early. \"Today is my birthday!\" {he} said.",
        "Then it was {his} birthday. {Hero} jumped out of bed.");
  w.say("{He} ran to {grown}. But {grown} only said, \"Good morning, {hero}.\"",
        "But {grown} did not say happy birthday. {Grown.he} was very busy.");
  w.say("{Hero} went {place.to} and met {friend.intro}.", "{Hero} saw {friend.intro} {place.in}.");
  w.say("\"Do you know what day it is?\" asked {hero}. \"No,\" said {friend}, and ran away.",
        "\"Can you play with me today?\" asked {hero}. \"I do not have time,\" said {friend}.");
  w.say("{Hero} sat down {spot} and cried. \"Everyone forgot my birthday,\" {he} said.",
        "{Hero} was sad. {He} sat {spot} all alone.");
  w.paragraph();
  w.say("When the sun went down, {hero} walked home slowly.", "At last, {he} was hungry and went home.");
  w.say("The house was dark. {He} opened the door.", "It was very quiet. {Hero} opened the door.");
  w.say("\"Surprise!\" shouted {grown} and {friend}.",
        "Suddenly, the light went on. \"Surprise!\" everyone shouted.");
  w.say("There was {cake.a} on the table, and there were {color} balloons everywhere.",
        "{Hero} saw {color} balloons and {cake.a}.");
  w.paragraph();
  w.say("\"I had no time to play, because I was making your {cake},\" said {friend}.",
        "\"We did not forget you,\" said {friend}. \"It was a secret!\"");
  w.say("{Grown} gave {hero} a box with a {color} ribbon. {He} opened it. Inside was {toy.a}!",
        "Then {friend} gave {him} a gift. It was {toy.a}, just what {he} wanted.");
  w.say("\"Thank you! I love it,\" said {hero}.", "{Hero} laughed and hugged them both.");
  w.say("They ate the {cake}, and then they {toy.played}.",
        "{Hero} and {friend} {toy.played}, and then they ate the {cake}.");
  w.say("It was the best birthday ever.", "{Hero} was the happiest {hero.kind} in the world.",
        "\"You are the best,\" said {hero}.");
}

constexpr Plot kPlots[] = {a_fear, growing, practice, surprise};

}  // namespace

std::span<const Plot> growing_plots() {
  return kPlots;
}

}  // namespace storytape
