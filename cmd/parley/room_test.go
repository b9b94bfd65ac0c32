package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"parley"
	"parley/client"
)

func TestReplayOfARoomThatIsMissing(t *testing.T) {
	dir := t.TempDir()
	rt, err := parley.New(parley.Config{Data: dir})
	if err != nil {
		t.Fatal(err)
	}
	if err := rt.Shutdown(context.Background()); err != nil {
		t.Fatal(err)
	}
	for _, after := range []uint64{0, 7} {
		c := replayCommand{offline: offline{Data: dir, Room: "nowhere"}, After: after}
		if err := c.Run(); err == nil || !strings.Contains(err.Error(), "there is no room nowhere in") {
			t.Errorf("after %d: %v", after, err)
		}
	}
	if left, err := filepath.Glob(filepath.Join(dir, "secret.key.*")); err != nil || len(left) > 0 {
		t.Errorf("files that were left: %v, %v", left, err)
	}
	if info, err := os.Stat(filepath.Join(dir, "secret.key")); err != nil || info.Mode().Perm() != 0o600 || info.Size() != 32 {
		t.Errorf("the secret: %v, %v", info, err)
	}
}

func TestTailTellsThatItWaits(t *testing.T) {
	var b strings.Builder
	tell := tellStatus(&b)
	tell(client.Status{Phase: client.Live})
	tell(client.Status{Phase: client.Waiting, Err: errors.New("connection refused"), RetryAt: time.Now().Add(2 * time.Second)})
	if got := b.String(); got != "parley: trying again in 2s: connection refused\n" {
		t.Errorf("told %q", got)
	}
}
