package script

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// document collects what is wrong with a script, so that its author sees all of
// it at once. Owned by one Parse.
type document struct{ problems []error }

// problem notes that the value at a path is not what is allowed there.
func (d *document) problem(path string, value any, allowed string, args ...any) {
	d.problems = append(d.problems, fmt.Errorf("%s: %s: %s", path, shown(value), fmt.Sprintf(allowed, args...)))
}

func (d *document) err() error { return errors.Join(d.problems...) }

// shown is a value as a problem names it: short, and on one line.
func shown(v any) string {
	switch v := v.(type) {
	case nil:
		return "nothing"
	case map[string]any:
		return fmt.Sprintf("a mapping of %d keys", len(v))
	case []any:
		return fmt.Sprintf("a list of %d", len(v))
	case string:
		const most = 60
		if runes := []rune(v); len(runes) > most {
			v = string(runes[:most]) + "…"
		}
		return fmt.Sprintf("%q", v)
	}
	return fmt.Sprint(v)
}

// node is a value of the document and where it is.
type node struct {
	doc   *document
	path  string
	value any // nil: not given
}

func (n node) given() bool { return n.value != nil }

func (n node) problem(allowed string, args ...any) { n.doc.problem(n.path, n.value, allowed, args...) }

// mapping returns the members of a mapping by key and refuses keys that are not
// allowed. Members that are not given are nodes too.
func (n node) mapping(keys ...string) map[string]node {
	members := map[string]node{}
	for _, k := range keys {
		members[k] = node{n.doc, n.path + "." + k, nil}
	}
	m, ok := n.value.(map[string]any)
	if !ok {
		n.problem("must be a mapping with keys of %s", strings.Join(keys, ", "))
		return members
	}
	var unknown []string
	for k, v := range m {
		if _, ok := members[k]; !ok {
			unknown = append(unknown, k)
			continue
		}
		members[k] = node{n.doc, n.path + "." + k, v}
	}
	slices.Sort(unknown)
	for _, k := range unknown {
		n.doc.problem(n.path+"."+k, m[k], "is not a key here; the keys are %s", strings.Join(keys, ", "))
	}
	return members
}

// list returns the elements of a list of at least one.
func (n node) list(of string) []node {
	l, ok := n.value.([]any)
	if !ok || len(l) == 0 {
		n.problem("must be a list of at least one of %s", of)
		return nil
	}
	nodes := make([]node, len(l))
	for i, v := range l {
		nodes[i] = node{n.doc, fmt.Sprintf("%s[%d]", n.path, i), v}
	}
	return nodes
}

// text returns a text of at most so many bytes, "" when it was not given.
func (n node) text(most int) string {
	if !n.given() {
		return ""
	}
	s, ok := n.value.(string)
	switch {
	case !ok:
		n.problem("must be a text; put it in quotes")
	case len(s) > most:
		n.problem("has %d bytes; at most %d are allowed", len(s), most)
	}
	return s
}

// word returns a text of 1 to so many bytes that must be given.
func (n node) word(most int) string {
	s := n.text(most)
	if strings.TrimSpace(s) == "" {
		if _, ok := n.value.(string); ok || !n.given() {
			n.problem("must be a text of 1 to %d bytes", most)
		}
	}
	return s
}

// texts returns a list of texts, or one text as a list of one.
func (n node) texts(most int) []string {
	if !n.given() {
		return nil
	}
	if _, ok := n.value.(string); ok {
		return []string{n.word(most)}
	}
	var all []string
	for _, e := range n.list("texts") {
		all = append(all, e.word(most))
	}
	return all
}

// integer returns a whole number within bounds, or nil when it was not given.
func (n node) integer(least, most int64) *int64 {
	if !n.given() {
		return nil
	}
	var i int64
	ok := true
	switch v := n.value.(type) {
	case int:
		i = int64(v)
	case int64:
		i = v
	case uint64:
		i, ok = int64(v), v <= math.MaxInt64
	default:
		ok = false
	}
	if !ok || i < least || i > most {
		n.problem("must be a whole number from %d to %d", least, most)
	}
	return &i
}

// truth returns true or false, or nil when it was not given.
func (n node) truth() *bool {
	if !n.given() {
		return nil
	}
	b, ok := n.value.(bool)
	if !ok {
		n.problem("must be true or false")
	}
	return &b
}

// maxDuration bounds every duration of a script.
const maxDuration = 24 * time.Hour

// duration returns a duration from 0 to maxDuration, 0 when it was not given.
func (n node) duration() time.Duration {
	if !n.given() {
		return 0
	}
	s, _ := n.value.(string)
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 || d > maxDuration {
		n.problem("must be a duration from 0s to 24h, such as 150ms or 2s")
		return 0
	}
	return d
}

// choice returns the value that parse gives for a word, zero when none was given.
func choice[T any](n node, parse func(string) (T, bool), words ...string) (v T) {
	if !n.given() {
		return v
	}
	s, _ := n.value.(string)
	v, ok := parse(s)
	if !ok {
		n.problem("must be one of %s", strings.Join(words, ", "))
	}
	return v
}
