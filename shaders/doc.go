// Package shaders is the home of the kernel sources and of the parameter structs that they share with Go.
//
// Nothing is here yet. The contract of the folder: every kernel is a .metal file that is embedded and
// handed out by name, whole, for a metal.Device to compile; params.h alone declares the parameter structs,
// and the Go structs are generated from it and checked against it. The package imports nothing of ours
// and keeps no state.
package shaders
