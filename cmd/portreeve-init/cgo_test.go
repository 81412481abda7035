//go:build cgo

package main

// A test binary with cgo is no static program, so init is built apart.
const selfIsStatic = false
