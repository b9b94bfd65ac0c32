package script

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"parley/event"
)

// The bounds of a script.
const (
	maxScript  = 1 << 20 // bytes
	maxText    = 64 << 10
	maxPattern = 1 << 10
	maxName    = 64
	maxChunk   = 4 << 10 // characters
	maxTimes   = 100_000
	maxNesting = 8 // of repeat
)

// Parse reads a script. Its error names every problem at once, each with its
// key, its value and what is allowed; keys that are not listed here are refused.
//
// The document has the one key replies, a list of {name, match, steps}. Names
// are unique. A match fits a turn when each of its members does: contains (a
// text or a list, any of which the input holds in any case), regexp (RE2, on the
// input), continues (request ids, one of which the input answers) and resumed
// (true or false). The last reply has no match, so that every turn has an answer.
//
// Each step is one of:
//   - progress: a stage, or {stage, current, total, unit, message}.
//   - say: a text, or {text | deltas, output, chunk, every, final, purpose,
//     history, audience, lang, spoken, interruptible}. The text is cut into
//     deltas of at most chunk characters, after white space where there is some;
//     without chunk, and for each of deltas, it is sent as it is. There is a
//     pause of every between deltas. final is true unless told. audience is room
//     or a list of participant ids. {text} stands for the input, {attempt} for
//     the attempt, {round} for the round of the innermost repeat. Without output
//     the steps are counted: say-1, say-2 and so on.
//   - checkpoint: any plain JSON value.
//   - ask: a request id, or {request, expires}; ends the attempt.
//   - complete: {}; ends the attempt, as its last step does without it.
//   - fail: the text of the error; panic: the text of the panic.
//   - wait: a duration, which the end of the attempt cuts short.
//   - hang: a duration, or released; it heeds nothing but Driver.Release.
//   - repeat: {times, steps}.
func Parse(raw []byte) (*Script, error) {
	if len(raw) > maxScript {
		return nil, fmt.Errorf("a script of %d bytes; at most %d are allowed", len(raw), maxScript)
	}
	var value any
	if err := yaml.Unmarshal(raw, &value); err != nil {
		return nil, fmt.Errorf("not YAML: %w", err)
	}
	doc := &document{}
	s := doc.script(node{doc, "script", value})
	if err := doc.err(); err != nil {
		return nil, err
	}
	return s, nil
}

func (d *document) script(n node) *Script {
	s := &Script{}
	if n.value == nil {
		n.problem("must be a mapping with the key replies")
		return s
	}
	replies := n.mapping("replies")["replies"]
	replies.path = "replies" // shorter, and there is nothing else at the top
	names := map[string]bool{}
	list := replies.list("replies")
	for i, e := range list {
		m := e.mapping("name", "match", "steps")
		r := reply{name: m["name"].word(maxName), match: m["match"].match(), steps: m["steps"].steps(0)}
		if r.name != "" && names[r.name] {
			m["name"].problem("is used twice; names of replies are unique")
		}
		names[r.name] = true
		switch isLast := i == len(list)-1; {
		case isLast && m["match"].given():
			m["match"].problem("must be left out of the last reply, which answers what no other does")
		case !isLast && !m["match"].given():
			m["match"].problem("must be given; only the last reply is without, and what follows would never be played")
		}
		s.replies = append(s.replies, r)
	}
	return s
}

func (n node) match() (m match) {
	if !n.given() {
		return m
	}
	known := len(n.doc.problems)
	f := n.mapping("contains", "regexp", "continues", "resumed")
	for _, t := range f["contains"].texts(maxPattern) {
		m.contains = append(m.contains, strings.ToLower(t))
	}
	if f["regexp"].given() {
		re, err := regexp.Compile(f["regexp"].word(maxPattern))
		if err != nil {
			f["regexp"].problem("must be a regular expression of RE2: %v", err)
		}
		m.regexp = re
	}
	for _, t := range f["continues"].texts(event.MaxInputID) {
		m.continues = append(m.continues, event.RequestID(t))
	}
	m.resumed = f["resumed"].truth()
	if m.any() && len(n.doc.problems) == known {
		n.problem("must have one of contains, regexp, continues, resumed")
	}
	return m
}

// steps reads a list of steps at a depth of repeats.
func (n node) steps(depth int) []step {
	var steps []step
	list := n.list("steps")
	for i, e := range list {
		m, _ := e.value.(map[string]any)
		kinds := slices.Sorted(maps.Keys(m))
		if len(kinds) != 1 || readers[kinds[0]] == nil {
			e.problem("must be a mapping with one key of %s", strings.Join(slices.Sorted(maps.Keys(readers)), ", "))
			continue
		}
		kind := kinds[0]
		s := readers[kind](node{n.doc, e.path + "." + kind, m[kind]}, depth)
		steps = append(steps, s)
		if ends[kind] && i < len(list)-1 {
			list[i+1].problem("is never reached; %s ends the attempt", kind)
		}
	}
	return steps
}

// readers has the reader of each kind of step. Filled in init, because repeat
// refers to it.
var readers map[string]func(n node, depth int) step

// ends are the kinds after which nothing is played.
var ends = map[string]bool{"ask": true, "complete": true, "fail": true, "panic": true}

func init() {
	leaf := func(read func(node) step) func(node, int) step {
		return func(n node, _ int) step { return read(n) }
	}
	readers = map[string]func(node, int) step{
		"progress": leaf(node.progress), "say": leaf(node.say), "checkpoint": leaf(node.checkpoint),
		"ask": leaf(node.ask), "complete": leaf(node.complete), "fail": leaf(node.fail), "panic": leaf(node.crash),
		"wait": leaf(node.wait), "hang": leaf(node.hang), "repeat": node.repeat,
	}
}

func (n node) progress() step {
	if _, ok := n.value.(string); ok {
		return emit{event.Progress{Stage: n.word(maxName)}}
	}
	const most = 1 << 53
	f := n.mapping("stage", "current", "total", "unit", "message")
	return emit{event.Progress{
		Stage: f["stage"].word(maxName), Current: f["current"].integer(0, most), Total: f["total"].integer(0, most),
		Unit: f["unit"].text(maxName), Message: f["message"].text(maxPattern),
	}}
}

func (n node) say() step {
	s := &say{final: true}
	defer s.prepare()
	if _, ok := n.value.(string); ok {
		s.text = n.word(maxText)
		return s
	}
	f := n.mapping("text", "deltas", "output", "chunk", "every", "final", "purpose", "history", "audience", "lang", "spoken", "interruptible")
	s.text = f["text"].text(maxText)
	s.output.Output = event.OutputID(f["output"].text(event.MaxInputID))
	s.every = f["every"].duration()
	s.output.Purpose = choice(f["purpose"], event.ParsePurpose, "answer", "question", "progress")
	s.output.History = choice(f["history"], event.ParseHistory, "record", "ephemeral")
	s.output.Audience = f["audience"].audience()
	s.output.Lang = f["lang"].text(maxName)
	s.output.Spoken = f["spoken"].text(event.MaxDelta)
	s.output.Interruptible = f["interruptible"].truth()
	if final := f["final"].truth(); final != nil {
		s.final = *final
	}
	if chunk := f["chunk"].integer(1, maxChunk); chunk != nil {
		s.chunk = int(*chunk)
	}
	if f["deltas"].given() {
		for _, e := range f["deltas"].list("texts") {
			s.deltas = append(s.deltas, e.text(maxText))
		}
	}
	switch {
	case f["text"].given() == f["deltas"].given():
		n.problem("must have either text or deltas")
	case f["deltas"].given() && f["chunk"].given():
		f["chunk"].problem("goes with text; deltas are sent as they are")
	case f["spoken"].given() && (f["deltas"].given() || f["chunk"].given()):
		f["spoken"].problem("goes with a text that is sent in one delta")
	}
	return s
}

func (n node) audience() (d event.Disclosure) {
	if !n.given() {
		return d
	}
	if n.value == "room" {
		return event.ToRoom()
	}
	if _, ok := n.value.([]any); !ok {
		n.problem("must be room or a list of participant ids")
		return d
	}
	var to []event.ParticipantID
	for _, id := range n.texts(event.MaxInputID) {
		to = append(to, event.ParticipantID(id))
	}
	return event.ToParticipants(to...)
}

func (n node) checkpoint() step {
	raw, err := json.Marshal(n.value)
	if err != nil {
		n.problem("must be plain JSON: no infinities, and texts as keys")
		return emit{event.Checkpoint{}}
	}
	if len(raw) > event.MaxCheckpoint {
		n.problem("has %d bytes as JSON; at most %d are allowed", len(raw), event.MaxCheckpoint)
	} else if err := event.CheckPlain(raw); err != nil {
		n.problem("must be plain JSON: %v", err)
	}
	return emit{event.Checkpoint{Value: raw}}
}

func (n node) ask() step {
	if _, ok := n.value.(string); ok {
		return ask{request: event.RequestID(n.word(event.MaxInputID))}
	}
	f := n.mapping("request", "expires")
	return ask{request: event.RequestID(f["request"].word(event.MaxInputID)), expires: f["expires"].duration()}
}

func (n node) complete() step {
	if m, ok := n.value.(map[string]any); n.given() && (!ok || len(m) > 0) {
		n.problem("must be {}; there is nothing to say about it")
	}
	return complete{}
}

func (n node) fail() step {
	return fail{fmt.Errorf("%w: %s", ErrScripted, n.word(maxPattern))}
}

func (n node) crash() step { return crash{n.word(maxPattern)} }

func (n node) wait() step {
	if !n.given() {
		n.problem("must be a duration from 0s to 24h, such as 150ms or 2s")
	}
	return wait{n.duration()}
}

func (n node) hang() step {
	if n.value == "released" {
		return hang{}
	}
	s, _ := n.value.(string)
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 || d > maxDuration {
		n.problem("must be released, or a duration up to 24h, such as 10s")
	}
	return hang{d}
}

func (n node) repeat(depth int) step {
	f := n.mapping("times", "steps")
	times := f["times"].integer(1, maxTimes)
	if times == nil {
		f["times"].problem("must be a whole number from 1 to %d", maxTimes)
		times = new(int64)
	}
	if depth == maxNesting {
		n.problem("repeats nest at most %d deep", maxNesting)
		return repeat{}
	}
	return repeat{int(*times), f["steps"].steps(depth + 1)}
}
