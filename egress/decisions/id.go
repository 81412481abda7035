package decisions

import "uuid"

// NewID returns a fresh decision id.
func NewID() string { return "dec_" + uuid.NewV7().String() }
