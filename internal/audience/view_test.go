package audience

import (
	"encoding/json"
	"slices"
)

// message is a frame as encoding/json reads it.
func message(f frame) object {
	var o object
	_ = json.Unmarshal(f.raw, &o)
	return o
}

func list(o object, member string) []any {
	l, _ := o[member].([]any)
	return l
}

func text(o object, member string) string {
	s, _ := o[member].(string)
	return s
}

// join puts the parts of a state together.
func join(parts []object) object {
	room, runs := object{}, []any{}
	captions := []any{}
	for _, p := range parts {
		if r, ok := p["room"].(object); ok {
			agents := append(list(room, "agents"), list(r, "agents")...)
			for k, v := range r {
				room[k] = v
			}
			if agents == nil {
				agents = []any{}
			}
			room["agents"] = agents
		}
		captions = append(captions, list(p, "captions")...)
		for _, raw := range list(p, "runs") {
			runs = joinRun(runs, raw.(object))
		}
	}
	return object{"room": room, "runs": runs, "captions": captions}
}

func joinRun(runs []any, more object) []any {
	have := findIn(runs, "run", text(more, "run"))
	if have == nil {
		return append(runs, more)
	}
	outputs := list(have, "outputs")
	for _, raw := range list(more, "outputs") {
		o := raw.(object)
		if was := findIn(outputs, "outputId", text(o, "outputId")); was != nil {
			was["text"] = text(was, "text") + text(o, "text")
			if o["final"] == true {
				was["final"] = true
			}
			continue
		}
		outputs = append(outputs, o)
	}
	have["outputs"] = outputs
	return runs
}

func findIn(l []any, member, value string) object {
	for _, raw := range l {
		if o := raw.(object); text(o, member) == value {
			return o
		}
	}
	return nil
}

// take moves a state on by an item.
func take(st, item object) {
	body := item["body"].(object)
	id := text(item, "run")
	runs := list(st, "runs")
	run := findIn(runs, "run", id)
	switch text(item, "kind") {
	case "room":
		room := st["room"].(object)
		if text(body, "type") == "focus" {
			room["focus"] = body["agent"]
			return
		}
		for _, member := range []string{"phase", "agents", "fallbackAgentId"} {
			if v, ok := body[member]; ok {
				room[member] = v
			} else {
				delete(room, member)
			}
		}
		if _, ok := room["focus"]; !ok {
			room["focus"] = nil
		}
	case "input":
		if id == "" {
			return // only others may see what comes of it
		}
		if run == nil {
			run = object{"run": id, "channel": item["channel"], "agent": body["agent"], "attempt": float64(0), "outputs": []any{}, "approvals": []any{}}
			st["runs"] = append(runs, run)
		}
		delete(run, "waiting")
		run["status"] = "active"
		if text(body, "state") == "queued" {
			run["status"] = "queued"
		}
		if in, ok := body["inputId"]; ok {
			run["inputId"] = in
		}
	case "run.event":
		if run != nil {
			happen(st, run, item, body)
		}
	}
}

func happen(st, run, item, body object) {
	switch text(body, "type") {
	case "attempt_started":
		run["status"], run["attempt"] = "active", item["attempt"]
		run["outputs"] = slices.DeleteFunc(slices.Clone(list(run, "outputs")), func(o any) bool { return o.(object)["final"] != true })
	case "assistant_output":
		o := object{"outputId": body["outputId"], "purpose": body["purpose"], "text": body["delta"]}
		if body["final"] == true {
			o["final"] = true
		}
		joinRun([]any{run}, object{"run": run["run"], "outputs": []any{o}})
	case "input_requested":
		waits := object{}
		for k, v := range body {
			if k != "type" {
				waits[k] = v
			}
		}
		run["status"], run["waiting"] = "waiting_for_input", waits
	case "completed", "run_canceled", "run_failed", "deadline_exceeded":
		st["runs"] = slices.DeleteFunc(slices.Clone(list(st, "runs")), func(r any) bool { return r.(object)["run"] == run["run"] })
	}
}

// bare leaves out the disclosures, which items and states tell in other places.
func bare(st object) object {
	runs := []any{}
	for _, raw := range list(st, "runs") {
		r := object{}
		for k, v := range raw.(object) {
			if k != "disclosure" {
				r[k] = v
			}
		}
		outputs := []any{}
		for _, raw := range list(r, "outputs") {
			o := object{}
			for k, v := range raw.(object) {
				if k != "disclosure" {
					o[k] = v
				}
			}
			outputs = append(outputs, o)
		}
		r["outputs"] = outputs
		runs = append(runs, r)
	}
	return object{"room": st["room"], "runs": runs}
}
