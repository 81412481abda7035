//go:build !cgo

package main

const selfIsStatic = true
