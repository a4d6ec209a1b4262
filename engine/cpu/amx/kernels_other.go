//go:build !amd64

package amx

// Here is false on this processor, and nothing calls these.

func multiply32(*call) { panic("no tiles") }

func multiply32x2(*call) { panic("no tiles") }

func multiply16(*call) { panic("no tiles") }

func few1(*fewCall) { panic("no tiles") }

func few4(*fewCall) { panic("no tiles") }

func split(*splitting) { panic("no tiles") }

func pair(_ *uint16, _ *float32, _ int) { panic("no tiles") }

func pair4(_ *uint16, _ *float32, _ int) { panic("no tiles") }

func center(_ *float32, _ int, _ float32) { panic("no tiles") }
