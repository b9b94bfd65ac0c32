package guide

import "strings"

// This file has the English that the guide knows beside the manifest: words
// that say nothing about what a question is about, and ways of saying hello.

func set(words string) map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields(words) {
		m[w] = true
	}
	return m
}

// contractions are written out before a text is cut into words.
var contractions = [][2]string{
	{"can't", "cannot"},
	{"won't", "will not"},
	{"n't", " not"},
	{"what's", "what is"},
	{"whats ", "what is "},
	{"who's", "who is"},
	{"it's", "it is"},
	{"i'm", "i am"},
	{"i've", "i have"},
	{"i'd", "i would"},
	{"i'll", "i will"},
	{"there's", "there is"},
	{"that's", "that is"},
	{"let's", "let us"},
	{"you're", "you are"},
	{"they're", "they are"},
}

// chatter are words that are in questions about anything.
var chatter = set(`
	a an the this that these those it its they them their there here he she him her his hers we us our you your yours i me my mine
	is are was were be been being am do does did doing done have has had having can could may might must shall should will would
	what which who whom whose when where why how if then than so as at by for from in into of on onto to with without about
	and or but not no nor yes while during until till because
	please tell explain describe show say said says give gives given know knows knew want wants wanted like likes need needs needed
	let lets make makes get gets got getting go goes going gone come comes put puts use uses used using
	happen happens happened work works mean means meant
	question questions rule rules game games play plays played playing player players
	really actually exactly just also still already even ever never always again maybe perhaps too very much many more most some any
	anything something nothing everything someone somebody anyone anybody everyone everybody nobody one ones other others another
	thing things stuff way ways kind kinds sort sorts case cases bit lot time times
	allowed allow allows possible able legal permitted okay ok well oh hey hi hello dear sir guys thanks thank sorry
	now today yet after before
	meaning difference different between none both either each whats`)

// slips are the words of chatter as they are often mistyped: with two letters
// swapped, or, of the longer ones, with one left out.
var slips = func() map[string]bool {
	m := map[string]bool{}
	for w := range chatter {
		for i := 1; i < len(w) && len(w) > 2; i++ {
			m[w[:i-1]+w[i:i+1]+w[i-1:i]+w[i+1:]] = true
		}
		for i := 1; i < len(w) && len(w) > 4; i++ {
			m[w[:i]+w[i+1:]] = true
		}
	}
	return m
}()

var articles = set(`a an the`)

// ordinary are words of other subjects that are one letter away from a word of
// a game; they are never taken for typing errors.
var ordinary = set(`
	weather chess king queen knight bishop pawn rook card cards poker book cook food fish bird cat cats dogs dog car cars house phone
	music movie film city country king world people person children name names year years month months week weeks day days
	money news sport sports football soccer tennis golf bread wine beer tea coffee water fire stars star moon train trains bus
	order buy sell shop store write read sing dance song poem joke jokes story stories secret love life death`)

// fillers may stand around a term of which the meaning is asked for.
var fillers = set(`a an the is are does do of word term mean means called exactly in to game this`)

var definitionStarts = []string{
	"what is meant by", "what is the meaning of", "what is the definition of", "what do you mean by", "what do you call", "what is", "what are", "what does",
	"what was", "define", "explain", "meaning of", "definition of", "describe", "tell me what", "can you explain", "could you explain", "and what is", "so what is",
}

var definitionEnds = []string{"mean", "means", "meaning", "definition"}

// leanStarts and leanWords mark a text that goes on from what was said before.
var (
	leanStarts = set(`and but so then also or`)
	leanWords  = set(`it that them this those these`)
)

var (
	salutes   = set(`hello hi hey hiya howdy greetings good morning afternoon evening day there everyone all guide dear how are you doing today`)
	greetings = set(`hello hi hey hiya howdy greetings morning evening afternoon day`) // of which a salute has one
	goodbyes  = set(`bye goodbye good night cheers see you later soon so long farewell ciao`)
	decisions = set(`yes yeah yep yup sure no nope nah ok okay none neither never mind nevermind forget it of them these those please maybe not cancel stop`)
	refusals  = set(`no nope nah none neither never mind nevermind forget it of them these those cancel stop not please thanks`)
	following = set(`and then next more go on continue what else after that tell me please so ok okay yes why how come really explain further
		detail details elaborate about it this keep going is there anything something now happens comes say can you a bit little`)
	helping = set(`help me please`)
)

var thanking = []string{"thanks", "thank you", "thx", "cheers", "great answer", "good answer", "very helpful"}

var repeating = []string{"again", "repeat", "once more", "pardon", "what did you say"}

var offering = []string{
	"who are you", "what are you", "your name", "what can you do", "what do you do", "what do you know", "what can i ask", "what can you tell", "what can you explain",
	"how can you help", "can you help", "help me", "help", "what rules do you know", "which rules do you know", "list the rules", "list of rules", "all the rules", "what topics",
	"which topics", "topics", "are you a bot", "are you human", "are you a robot", "are you real", "what is this",
}

// playing are questions about the game as a whole, when no other word says more.
var playing = []string{"play", "playing", "played", "rules", "rule", "game", "works", "work", "start"}

// places are words for the place of an option in a question, from 0.
var places = map[string]int{
	"1": 0, "first": 0, "1st": 0, "a": 0, "former": 0,
	"2": 1, "two": 1, "second": 1, "2nd": 1, "b": 1,
	"3": 2, "three": 2, "third": 2, "3rd": 2, "c": 2,
}

// placeFillers may stand beside the place of an option.
var placeFillers = set(`the number option yes please i mean think want that is of them then ok okay and`)
