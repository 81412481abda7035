//go:build tools

// Package reference pins what is built for comparison and imported nowhere.
package reference

import _ "github.com/stripe/smokescreen"
