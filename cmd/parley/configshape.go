package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// decodeConfig reads the one document of a configuration file. Its error names
// every setting that is unknown or has a value of another type, with its line and
// what is allowed there, not the types of this program. Text that is not YAML at
// all is told by its first fault.
func decodeConfig(raw []byte, f *fileConfig) (err error) {
	defer func() {
		// The parser is somebody else's, and a file that it falls over is a file that
		// cannot be used; its panic holds pieces of the file, which may be secret.
		if recover() != nil {
			err = errors.New("it is no YAML that can be read")
		}
	}()
	file, err := parser.ParseBytes(raw, 0)
	if err != nil {
		return syntaxOf(err)
	}
	var docs []ast.Node
	for _, d := range file.Docs {
		if d.Body != nil && d.Body.Type() != ast.CommentType {
			docs = append(docs, d.Body)
		}
	}
	switch {
	case len(docs) == 0 || len(docs) == 1 && docs[0].Type() == ast.NullType:
		return errors.New("it is empty; parley serve --print-config prints an example to start from")
	case len(docs) > 1:
		return errors.New("it holds more than one document; there must be one")
	}
	s := &shape{anchors: map[string]ast.Node{}}
	ast.Walk(s, docs[0])
	s.check(docs[0], reflect.TypeFor[fileConfig](), "")
	if len(s.bad) > 0 {
		return errors.Join(s.bad...)
	}
	err = yaml.NewDecoder(strings.NewReader(string(raw)), yaml.DisallowUnknownField()).Decode(f)
	if err != nil && !errors.Is(err, io.EOF) {
		return syntaxOf(err)
	}
	return err
}

// syntaxOf says where a file is no YAML, and why. What the parser quotes of the
// file is cut off: it may be secret.
func syntaxOf(err error) error {
	e, ok := errors.AsType[yaml.Error](err)
	if !ok || e.GetToken() == nil || e.GetToken().Position == nil {
		return errors.New("it is no YAML that can be read")
	}
	why := e.GetMessage()
	if strings.Contains(why, "already defined") {
		why = "this setting is given twice"
	}
	if i := strings.IndexAny(why, ":\"'\n"); i >= 0 {
		why = strings.TrimSpace(why[:i])
	}
	at := e.GetToken().Position
	return fmt.Errorf("[%d:%d] %s", at.Line, at.Column, why)
}

// shape compares a document with the settings that there are, so that all that
// does not fit is told at once: the decoder stops at the first, and takes 1.5
// for a whole number. Owned by one decodeConfig.
type shape struct {
	anchors map[string]ast.Node
	aliases int
	bad     problems
}

// maxAliases bounds how often a document's aliases are followed, so that a few
// lines that repeat each other do not grow without bound.
const maxAliases = 1000

// maxShown is how many bytes of a name are shown. A secret has more.
const maxShown = 40

// Visit implements ast.Visitor: it notes what aliases stand for.
func (s *shape) Visit(n ast.Node) ast.Visitor {
	if a, ok := n.(*ast.AnchorNode); ok {
		s.anchors[a.Name.GetToken().Value] = a.Value
	}
	return s
}

func (s *shape) add(n ast.Node, key, allowed string) {
	line := 0
	if t := n.GetToken(); t != nil && t.Position != nil {
		line = t.Position.Line
	}
	if key == "" {
		key = "the file"
	}
	s.bad = append(s.bad, fmt.Errorf("%s (line %d): %s", key, line, allowed))
}

// resolve returns the node that an anchor, an alias or a tag stands for; nil
// when that cannot be told, which it has reported.
func (s *shape) resolve(n ast.Node, key string) ast.Node {
	for {
		switch x := n.(type) {
		case *ast.AnchorNode:
			n = x.Value
		case *ast.TagNode:
			s.add(n, key, "tags have no meaning here")
			return nil
		case *ast.AliasNode:
			to := s.anchors[x.Value.GetToken().Value]
			if s.aliases++; to == nil || s.aliases > maxAliases {
				s.add(n, key, "is an alias of nothing that was named before, or one of too many")
				return nil
			}
			n = to
		default:
			return n
		}
	}
}

func (s *shape) check(n ast.Node, t reflect.Type, key string) {
	if n = s.resolve(n, key); n == nil || n.Type() == ast.NullType {
		return // null: the default
	}
	ok := false
	switch {
	case t == reflect.TypeFor[time.Duration]():
		_, err := time.ParseDuration(text(n))
		ok = n.Type() == ast.StringType && err == nil
	case t.Kind() == reflect.Struct, t.Kind() == reflect.Map:
		var m ast.MapNode
		if m, ok = n.(ast.MapNode); ok {
			s.checkMap(m, t, key)
		}
	case t.Kind() == reflect.Slice:
		var list *ast.SequenceNode
		if list, ok = n.(*ast.SequenceNode); ok {
			for i, v := range list.Values {
				s.check(v, t.Elem(), fmt.Sprintf("%s[%d]", key, i))
			}
		}
	case t.Kind() == reflect.String:
		switch n.Type() {
		case ast.StringType, ast.LiteralType, ast.IntegerType, ast.FloatType, ast.BoolType:
			ok = true
		}
	case t.Kind() == reflect.Bool:
		ok = n.Type() == ast.BoolType
	case t.Kind() == reflect.Int:
		var i *ast.IntegerNode
		if i, ok = n.(*ast.IntegerNode); ok {
			if u, big := i.Value.(uint64); big && u > math.MaxInt64 {
				ok = false
			}
		}
	}
	if !ok {
		s.add(n, key, "must be "+wordOf(t))
	}
}

// checkMap checks the members of a mapping: each a setting of its own, or all
// of one kind under names that are free.
func (s *shape) checkMap(m ast.MapNode, t reflect.Type, key string) {
	for it := m.MapRange(); it.Next(); {
		k, v := it.Key(), it.Value()
		if k.IsMergeKey() {
			s.checkMerged(v, t, key)
			continue
		}
		name := text(k)
		at, odd := name, strings.ContainsFunc(name, func(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) })
		if odd {
			at = quoted(name)
		}
		if len(name) > maxShown { // a secret on the wrong side of a colon, perhaps
			at = "(a long name)"
		}
		if key != "" {
			at = key + "." + at
		}
		if t.Kind() == reflect.Map {
			if odd || len(name) > maxShown {
				s.add(k, at, fmt.Sprintf("a name must be of at most %d printable characters", maxShown))
				continue
			}
			s.check(v, t.Elem(), at)
			continue
		}
		if f, ok := setting(t, name); ok {
			s.check(v, f.Type, at)
			continue
		}
		s.add(k, at, "there is no such setting; there are "+strings.Join(settings(t), ", "))
	}
}

// checkMerged checks what a merge key brings: a mapping, or a list of them.
func (s *shape) checkMerged(n ast.Node, t reflect.Type, key string) {
	n = s.resolve(n, key)
	if list, ok := n.(*ast.SequenceNode); ok {
		for _, v := range list.Values {
			s.checkMerged(v, t, key)
		}
		return
	}
	if m, ok := n.(ast.MapNode); ok {
		s.checkMap(m, t, key)
	} else if n != nil {
		s.add(n, key, "what is merged must be settings")
	}
}

// text returns a key or a scalar as it stands in the file.
func text(n ast.Node) string {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value
	case *ast.MappingKeyNode:
		return text(n.Value)
	}
	if t := n.GetToken(); t != nil {
		return t.Value
	}
	return ""
}

func setting(t reflect.Type, name string) (reflect.StructField, bool) {
	for i := range t.NumField() {
		if f := t.Field(i); f.Tag.Get("yaml") == name && name != "" {
			return f, true
		}
	}
	return reflect.StructField{}, false
}

func settings(t reflect.Type) []string {
	var names []string
	for i := range t.NumField() {
		names = append(names, t.Field(i).Tag.Get("yaml"))
	}
	return names
}

// wordOf says what a setting of that type looks like.
func wordOf(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return "a duration such as 30s, 2m or 1h"
	case t.Kind() == reflect.String:
		return "a text"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.Int:
		return "a whole number"
	case t.Kind() == reflect.Slice:
		return "a list"
	}
	return "settings, each on a line of its own as key: value"
}
