package workerpool

import (
	"runtime"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestATaskNeverWaitsForAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New()
		defer p.Close()
		block, ran := make(chan struct{}), 0
		for range 10_000 {
			p.Go(func() { <-block })
		}
		p.Go(func() { ran++ })
		synctest.Wait()
		if ran != 1 {
			t.Error("a task waits for those before it")
		}
		close(block)
		synctest.Wait()
	})
}

func TestIdleGoroutinesAreBoundedUsedAgainAndEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := runtime.NumGoroutine()
		p := New()
		block := make(chan struct{})
		for range 1000 {
			p.Go(func() { <-block })
		}
		close(block)
		synctest.Wait()
		kept := runtime.NumGoroutine() - before
		if kept < 1 || kept > int(p.keep) {
			t.Errorf("%d goroutines are kept, want 1 to %d", kept, p.keep)
		}
		for range kept {
			p.Go(func() {})
			synctest.Wait()
		}
		if n := runtime.NumGoroutine() - before; n != kept {
			t.Errorf("%d goroutines after using the %d that waited", n, kept)
		}
		p.Close()
		synctest.Wait()
		if n := runtime.NumGoroutine() - before; n != 0 {
			t.Errorf("%d goroutines are left", n)
		}
		done := false
		p.Go(func() { done = true })
		synctest.Wait()
		if !done {
			t.Error("a task after Close is lost")
		}
	})
}
