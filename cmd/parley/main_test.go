package main

import (
	"os"
	"testing"
)

// asMain makes a process of the test binary run the command line, so that tests
// have a real server as a second process without building one.
const asMain = "PARLEY_TEST_AS_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asMain) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}
