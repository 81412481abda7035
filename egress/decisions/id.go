package decisions

import (
	"fmt"

	"github.com/google/uuid"
)

// NewID returns a fresh decision id.
func NewID() (string, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return "", fmt.Errorf("making a decision id: %w", err)
	}
	return "dec_" + id.String(), nil
}
