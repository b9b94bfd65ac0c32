// Package archtest holds the module's import policy: which package may import
// which, which packages are pure, and which library only one part may touch.
//
// It reads source text with go/parser: every non-test Go file under the module
// root, whatever its build tags. It does not load, type-check or run anything,
// and it does not look at tests, which may import what they like.
//
// The policy is the set of tables in policy.go. [Check] has no state and may
// be called from several goroutines.
package archtest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// anyone in an edge lets every package import the one below.
const anyone = "*"

// Check reads the module whose go.mod is at the top of fsys and returns what
// breaks the policy, one sentence each, in the order of file names. The
// sentence begins with file and line, or with the package. It returns nil when
// the module keeps the policy, and an error when the module cannot be read or
// parsed.
func Check(fsys fs.FS) ([]string, error) {
	m, err := load(fsys)
	if err != nil {
		return nil, err
	}
	var found []string
	for _, p := range m.packages {
		found = append(found, m.checkPackage(p)...)
	}
	return found, nil
}

// source is one parsed module.
type source struct {
	path     string // the module path of go.mod
	fset     *token.FileSet
	packages []*sourcePackage // ordered by folder
}

// sourcePackage is what one folder holds.
type sourcePackage struct {
	name  string // as in the tables: the folder, or root
	files []sourceFile
}

type sourceFile struct {
	name string
	tree *ast.File
}

// load parses the module. Folders that the go command ignores are left out,
// and so are those of installed npm packages, some of which carry Go files.
func load(fsys fs.FS) (*source, error) {
	gomod, err := fs.ReadFile(fsys, "go.mod")
	if err != nil {
		return nil, err
	}
	m := &source{path: modulePath(gomod), fset: token.NewFileSet()}
	if m.path == "" {
		return nil, errors.New("go.mod: no module line")
	}
	byFolder := map[string]*sourcePackage{}
	err = fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := path.Base(name)
		if d.IsDir() {
			if name != "." && (base[0] == '.' || base[0] == '_' || base == "testdata" || base == "node_modules" || base == "vendor") {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(base, ".go") || base[0] == '.' || base[0] == '_' {
			return nil
		}
		dir := path.Dir(name)
		p := byFolder[dir]
		if p == nil {
			p = &sourcePackage{name: tableName(dir)}
			byFolder[dir] = p
			m.packages = append(m.packages, p)
		}
		if strings.HasSuffix(base, "_test.go") {
			return nil
		}
		text, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		tree, err := parser.ParseFile(m.fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		p.files = append(p.files, sourceFile{name, tree})
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(m.packages, func(a, b *sourcePackage) int { return strings.Compare(a.name, b.name) })
	return m, nil
}

// modulePath returns the path on go.mod's module line, or "".
func modulePath(gomod []byte) string {
	lines := bufio.NewScanner(bytes.NewReader(gomod))
	for lines.Scan() {
		if f := strings.Fields(lines.Text()); len(f) >= 2 && f[0] == "module" {
			return strings.Trim(f[1], `"`)
		}
	}
	return ""
}

// tableName turns a folder into the name by which the tables call it. A folder
// that is called like the root package gets a name no table has.
func tableName(dir string) string {
	switch dir {
	case ".":
		return root
	case root:
		return "./" + root
	}
	return dir
}

func (m *source) checkPackage(p *sourcePackage) []string {
	f, known := folderOf(p.name)
	if !known {
		return []string{fmt.Sprintf("%s: this folder may not hold Go code: put the code in a package that exists, "+
			"or add the folder to folders and graph in internal/archtest/policy.go, with the reason", p.name)}
	}
	found := checkDoc(p)
	for _, file := range p.files {
		for _, spec := range file.tree.Imports {
			target, err := strconv.Unquote(spec.Path.Value)
			if err != nil { // the parser accepts only well-formed paths
				panic(err)
			}
			if fault := m.importFault(p.name, f.kind, target); fault != "" {
				found = append(found, fmt.Sprintf("%s: %s imports %s: %s", m.at(spec.Pos()), p.name, target, fault))
			}
		}
		if f.kind == pure {
			found = append(found, m.checkClock(p.name, file.tree)...)
		}
	}
	return found
}

// at gives a position as file:line.
func (m *source) at(pos token.Pos) string {
	p := m.fset.Position(pos)
	return p.Filename + ":" + strconv.Itoa(p.Line)
}

// importFault says why the package name may not import target, or "".
func (m *source) importFault(name string, k kind, target string) string {
	if own, ok := m.ownPackage(target); ok {
		return edgeFault(name, k, own)
	}
	for _, e := range engines {
		if within(target, e.path) && k != support && !matchAny(e.above, name) {
			return fmt.Sprintf("only %s may: %s", list(e.above), e.why)
		}
	}
	if k != pure {
		return ""
	}
	for _, b := range banned {
		if within(target, b.path) && !matchAny(b.except, name) {
			return fmt.Sprintf("pure packages may not: %s", b.why)
		}
	}
	if standard(target) {
		return ""
	}
	for _, l := range admitted {
		if within(target, l.path) && matchAny(l.above, name) {
			return ""
		}
	}
	return "pure packages import the standard library only: declare what is needed as a value of the input, or do it in a shell"
}

// ownPackage returns the table name of an import path of this module.
func (m *source) ownPackage(target string) (string, bool) {
	if target == m.path {
		return root, true
	}
	dir, ok := strings.CutPrefix(target, m.path+"/")
	return tableName(dir), ok
}

// edgeFault says why the package name may not import the module's own package
// below, or "".
func edgeFault(name string, k kind, below string) string {
	if k == support {
		return ""
	}
	if f, known := folderOf(below); known && f.kind == support {
		return fmt.Sprintf("only tests and internal packages may: %s", f.why)
	}
	for _, e := range graph {
		if e.below == below {
			if matchAny(e.above, name) {
				return ""
			}
			return fmt.Sprintf("only %s may: %s", list(e.above), e.why)
		}
	}
	return "no package may: to allow it, add an edge to graph in internal/archtest/policy.go, with the reason"
}

// checkDoc holds that exactly one file carries the package comment. A folder
// with tests only needs none.
func checkDoc(p *sourcePackage) []string {
	var docs []string
	for _, f := range p.files {
		if f.tree.Doc.Text() != "" {
			docs = append(docs, f.name)
		}
	}
	switch {
	case len(docs) == 0 && len(p.files) > 0:
		return []string{fmt.Sprintf("%s: no file has a package comment: say in one what the package is, what it is not, "+
			"who owns its state and what it guarantees", p.name)}
	case len(docs) > 1:
		return []string{fmt.Sprintf("%s: %d files have a package comment (%s): keep one", p.name, len(docs), list(docs))}
	}
	return nil
}

// checkClock finds what reads the clock in a file of a pure package, called or
// only named: a function value reads it just as well.
func (m *source) checkClock(name string, tree *ast.File) []string {
	local, found := "", []string(nil)
	for _, spec := range tree.Imports {
		if spec.Path.Value != `"time"` {
			continue
		}
		local = "time"
		if spec.Name != nil {
			local = spec.Name.Name
		}
		if local == "." {
			found = append(found, fmt.Sprintf("%s: %s imports time with a dot: pure packages name it, "+
				"so that it shows what they use of it", m.at(spec.Pos()), name))
		}
	}
	if local == "" {
		return nil
	}
	ast.Inspect(tree, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := sel.X.(*ast.Ident); ok && x.Name == local && slices.Contains(clock, sel.Sel.Name) {
			found = append(found, fmt.Sprintf("%s: %s uses time.%s: pure packages take the time as a value, "+
				"or a replay would differ", m.at(sel.Pos()), name, sel.Sel.Name))
		}
		return true
	})
	return found
}

func folderOf(name string) (folder, bool) {
	for _, f := range folders {
		if match(f.name, name) {
			return f, true
		}
	}
	return folder{}, false
}

// match reports whether a table's pattern means the package name.
func match(pattern, name string) bool {
	if pattern == anyone {
		return true
	}
	ok, err := path.Match(pattern, name)
	return err == nil && ok
}

func matchAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return match(p, name) })
}

// within reports whether target is the path or lies below it.
func within(target, top string) bool {
	return target == top || strings.HasPrefix(target, top+"/")
}

// standard reports whether target is in the standard library: its first
// element then has no dot.
func standard(target string) bool {
	first, _, _ := strings.Cut(target, "/")
	return !strings.Contains(first, ".")
}

// list joins names as a sentence does.
func list(names []string) string {
	if n := len(names); n > 1 {
		return strings.Join(names[:n-1], ", ") + " and " + names[n-1]
	}
	return strings.Join(names, "")
}
