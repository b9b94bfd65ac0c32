package event

import (
	"fmt"
	"testing"
)

// K6: a word on the wire means one thing and comes back as itself.
func TestWordsComeBackAsThemselves(t *testing.T) {
	words(t, endpointNames[:], ParseEndpointKind)
	words(t, disclosureNames[:], ParseDisclosureKind)
	words(t, modalityNames[:], ParseModality)
	words(t, busyNames[:], ParseBusyPolicy)
	words(t, admissionNames[:], func(s string) (Admission, bool) { return parse[Admission](admissionNames[:], s) })
	words(t, statusNames[:], ParseStatus)
	words(t, purposeNames[:], ParsePurpose)
	words(t, historyNames[:], ParseHistory)
	words(t, runKindNames[:], ParseRunKind)
}

func words[T interface {
	~uint8
	fmt.Stringer
}](t *testing.T, names []string, parse func(string) (T, bool)) {
	t.Helper()
	seen := map[string]bool{}
	for i, name := range names[1:] {
		v := T(i + 1)
		if v.String() != name || name == "" || seen[name] {
			t.Errorf("%T %d is %q", v, i+1, v)
		}
		seen[name] = true
		if got, ok := parse(name); !ok || got != v {
			t.Errorf("%q is parsed as %v, %v", name, got, ok)
		}
	}
	for _, s := range []string{"", "unknown", T(len(names)).String()} {
		if got, ok := parse(s); ok {
			t.Errorf("%q is parsed as %v", s, got)
		}
	}
}
