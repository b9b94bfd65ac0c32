package event

import (
	"errors"
	"fmt"
	"time"
)

// Voice is the provider-neutral voice of an agent.
type Voice struct {
	ID   string `json:"id"`
	Lang string `json:"lang,omitempty"`
}

// Recovery says what becomes of an agent's active runs after a crash (R1).
type Recovery string

// The recovery policies. Empty means RecoverAuto.
const (
	RecoverAuto Recovery = "auto" // invoke the driver again
	RecoverFail Recovery = "fail" // fail the run
)

// Agent describes a conversational presence: descriptor and the name of its driver (N1).
type Agent struct {
	ID          AgentID    `json:"id"`
	Label       string     `json:"label"`
	Role        string     `json:"role"` // guide, character, referee, player or custom; never authority
	Description string     `json:"description,omitempty"`
	Voice       *Voice     `json:"voice,omitempty"`
	Visibility  Disclosure `json:"visibility,omitzero"` // unstated: the room
	Version     string     `json:"version,omitempty"`
	Driver      string     `json:"driver"` // name of a driver in the server's configuration
	Recovery    Recovery   `json:"recovery,omitempty"`
}

// Visible returns who may see the agent at most.
func (a Agent) Visible() Disclosure {
	if !a.Visibility.Stated() {
		return ToRoom()
	}
	return a.Visibility
}

// ChannelPolicy fixes the behaviour of the channels whose name matches (see Match).
type ChannelPolicy struct {
	Match  string     `json:"match"`
	OnBusy BusyPolicy `json:"onBusy,omitempty"`
	// Fixed makes OnBusy hold whatever an input asks for; else it is the default.
	Fixed bool `json:"fixed,omitempty"`
}

// RoomConfig is the durable configuration of a room (N0). Zero members mean the default.
type RoomConfig struct {
	Agents        []Agent            `json:"agents"`
	FallbackAgent AgentID            `json:"fallbackAgentId,omitempty"`
	Phase         string             `json:"phase,omitempty"`
	PhaseAgents   map[string]AgentID `json:"phaseAgents,omitempty"`
	Channels      []ChannelPolicy    `json:"channels,omitempty"`
	DeadlineMs    int64              `json:"deadlineMs,omitempty"` // 0: the server's, 120 s
	WaitMs        int64              `json:"waitMs,omitempty"`     // 0: 15 min
}

// The defaults of a room.
const (
	DefaultDeadline = 120 * time.Second
	DefaultWait     = 15 * time.Minute
)

// Deadline returns how long a run may work.
func (c RoomConfig) Deadline() time.Duration {
	if c.DeadlineMs == 0 {
		return DefaultDeadline
	}
	return time.Duration(c.DeadlineMs) * time.Millisecond
}

// Wait returns how long a run may wait for an answer.
func (c RoomConfig) Wait() time.Duration {
	if c.WaitMs == 0 {
		return DefaultWait
	}
	return time.Duration(c.WaitMs) * time.Millisecond
}

// Agent returns the registered agent with that id.
func (c RoomConfig) Agent(id AgentID) (Agent, bool) {
	for _, a := range c.Agents {
		if a.ID == id {
			return a, true
		}
	}
	return Agent{}, false
}

// Validate reports all that is wrong at once, each with its key, its value and what is allowed.
func (c RoomConfig) Validate() error {
	var errs []error
	bad := func(key string, value any, allowed string) {
		errs = append(errs, fmt.Errorf("%s: %v: %s", key, value, allowed))
	}
	seen := map[AgentID]bool{}
	for i, a := range c.Agents {
		key := fmt.Sprintf("agents[%d]", i)
		if a.ID == "" || len(a.ID) > MaxName {
			bad(key+".id", fmt.Sprintf("%q", a.ID), "must have 1 to 128 bytes")
		}
		if seen[a.ID] {
			bad(key+".id", fmt.Sprintf("%q", a.ID), "is used twice; ids of agents are unique in a room")
		}
		seen[a.ID] = true
		if a.Driver == "" {
			bad(key+".driver", `""`, "must name a driver of the server's configuration")
		}
		switch a.Role {
		case "guide", "character", "referee", "player", "custom":
		default:
			bad(key+".role", fmt.Sprintf("%q", a.Role), "must be guide, character, referee, player or custom")
		}
		switch a.Recovery {
		case "", RecoverAuto, RecoverFail:
		default:
			bad(key+".recovery", fmt.Sprintf("%q", a.Recovery), "must be auto or fail")
		}
	}
	if c.FallbackAgent != "" && !seen[c.FallbackAgent] {
		bad("fallbackAgentId", fmt.Sprintf("%q", c.FallbackAgent), "must be the id of one of the agents")
	}
	for _, p := range sortedKeys(c.PhaseAgents) {
		if !seen[c.PhaseAgents[p]] {
			bad("phaseAgents."+p, fmt.Sprintf("%q", c.PhaseAgents[p]), "must be the id of one of the agents")
		}
	}
	for i, ch := range c.Channels {
		if ch.Match == "" {
			bad(fmt.Sprintf("channels[%d].match", i), `""`, "must be a pattern of channel names, such as private:*")
		}
		switch ch.OnBusy {
		case BusyDefault, BusySupersede, BusyQueue, BusyReject:
		default:
			bad(fmt.Sprintf("channels[%d].onBusy", i), ch.OnBusy, "must be supersede, queue or reject")
		}
		if ch.Fixed && ch.OnBusy == BusyDefault {
			bad(fmt.Sprintf("channels[%d].fixed", i), true, "needs onBusy, which it fixes")
		}
	}
	const week = 7 * 24 * time.Hour
	if ms := c.DeadlineMs; ms < 0 || ms > week.Milliseconds() {
		bad("deadlineMs", ms, "must be 0 (the default) to 604800000 milliseconds")
	}
	if ms := c.WaitMs; ms < 0 || ms > week.Milliseconds() {
		bad("waitMs", ms, "must be 0 (the default) to 604800000 milliseconds")
	}
	return errors.Join(errs...)
}
