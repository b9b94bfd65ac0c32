package persistence

func child() bool { return false }
