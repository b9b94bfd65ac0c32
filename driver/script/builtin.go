package script

import (
	"embed"
	"fmt"
	"sync"
)

//go:embed scripts/*.yaml
var embedded embed.FS

var (
	storyteller = sync.OnceValue(func() *Script { return builtin("storyteller") })
	turn20      = sync.OnceValue(func() *Script { return builtin("turn20") })
)

// Storyteller returns a script that greets, asks which of two stories to tell,
// and streams one in some 40 small deltas over about six seconds.
func Storyteller() *Script { return storyteller() }

// Turn20 returns the script of the turn that servers are measured with: one
// progress, 20 deltas of about 30 bytes of one output, completed, without delay.
func Turn20() *Script { return turn20() }

// Named returns a script that comes with the package: storyteller or turn20.
func Named(name string) (*Script, error) {
	switch name {
	case "storyteller":
		return Storyteller(), nil
	case "turn20":
		return Turn20(), nil
	}
	return nil, fmt.Errorf("%q: must be one of the scripts storyteller, turn20", name)
}

// builtin reads an embedded script. A test holds that each of them parses.
func builtin(name string) *Script {
	raw, err := embedded.ReadFile("scripts/" + name + ".yaml")
	if err == nil {
		var s *Script
		if s, err = Parse(raw); err == nil {
			return s
		}
	}
	panic(fmt.Sprintf("script: the embedded %s: %v", name, err))
}
