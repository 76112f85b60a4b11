// The vocabulary of the embedded corpus and the casting of a story: who is in it, with what, and where.
//
// Every casting picks one thing and fills its slots. A noun keeps its adjective and a name its pronouns, so
// that a reader, or a model, who has met "a red ball" meets "the red ball", or just "the ball", from then on.
#pragma once

#include <initializer_list>
#include <string_view>

#include "train/corpus_story.h"

namespace storytape {

using Casting = void (*)(StoryWriter& w);
// Casts one after another: cast(w, {a_hero, a_friend, a_toy}).
inline void cast(StoryWriter& w, std::initializer_list<Casting> castings) {
  for (const Casting casting : castings) casting(w);
}

// The one the story is about: a child, or an animal that lives like one.
//   hero, hero.a ("a brave girl"), hero.kind ("girl"), he, him, his
void a_hero(StoryWriter& w);
void a_child(StoryWriter& w);
void an_animal(StoryWriter& w);
// Another of the hero's sort with another name: friend, friend.intro ("her friend Tim", for the first time),
// friend.a, friend.kind, friend.he, .him, .his
void a_friend(StoryWriter& w);
// Makes the hero or the friend, already cast, an animal of this kind.
void set_kind(StoryWriter& w, std::string_view person, std::string_view kind);
// Someone of the hero's family: grown ("her grandma"), grown.call ("Grandma"), grown.he, .him, .his
void a_grown_up(StoryWriter& w);

// toy ("red ball" or "ball"), toy.a ("a red ball"), toy.noun ("ball"), toy.play ("bounce the red ball"),
// toy.played
void a_toy(StoryWriter& w);
// Two toys of different nouns, in the slots toy and other.
void two_toys(StoryWriter& w);
// A toy that the wind can carry or a throw can lose: as toy.
void a_light_toy(StoryWriter& w);
// food ("sweet pear" or "pear"), food.a, food.noun
void a_food(StoryWriter& w);

// place ("park"), place.in ("in the park"), place.to ("to the park"). Out of doors.
void a_place(StoryWriter& w);
// The same, beside water.
void a_place_by_water(StoryWriter& w);
// spot, spot2: two different places to look or hide, out of doors ("behind a big tree").
void two_spots(StoryWriter& w);
// room, room2: the same at home ("under the bed").
void two_rooms(StoryWriter& w);
// day ("one sunny morning").
void a_day(StoryWriter& w);

// A thing with an adjective: NAME ("old map" or "map"), NAME.a ("an old map"), NAME.noun ("map"). Both words
// may hold alternatives.
void set_thing(StoryWriter& w, std::string_view slot, std::string_view adjective, std::string_view noun);

// The first sentences: who the hero is, and what he or she likes to do.
void open_story(StoryWriter& w);
// The hero's introduction alone.
void introduce_hero(StoryWriter& w);
// One closing sentence for a story that ends well for the hero and somebody else.
void close_together(StoryWriter& w);
// One closing sentence about the hero alone, at the end of the day.
void close_alone(StoryWriter& w);

}  // namespace storytape
