// Package config reads the configuration file.
//
//	c, err := config.Load(path)   // an empty path is all defaults
//
// # Security invariants
//
//   - CF-1: an unknown key refuses the whole file, naming the nearest known one (TestUnknownKeyIsRefused).
//   - CF-2: an exemption that overlaps the hard floor refuses the whole file (TestExemptionOfTheHardFloorIsRefused).
//
// # Not here
//
// Secrets: none may stand in the file. Flags: cmd/portreeve.
//
// # Failure
//
// A file that can't be read whole starts nothing.
package config
