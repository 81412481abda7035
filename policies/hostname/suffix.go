package hostname

import (
	"strings"

	"golang.org/x/net/publicsuffix"
)

// Section says which part of the public suffix list a name stands in, if it is itself a suffix.
type Section uint8

const (
	// NotSuffix: somebody's own name.
	NotSuffix Section = iota
	// ICANN: a registry's suffix, such as com or co.uk. Everybody may own a name below it.
	ICANN
	// Private: a company's suffix, such as github.io. Its customers own the names below it.
	Private
	// Unlisted: a single label that the list does not know, such as test or corp.
	Unlisted
)

// SuffixSection returns the section in which host, in normal form, is itself a suffix, or in which every name
// directly below it is one (ck, as the list has *.ck).
func SuffixSection(host string) Section {
	section := sectionOf(host)
	if section == NotSuffix || section == Unlisted {
		if below := sectionOf("portreeve-probe." + host); below != NotSuffix {
			return below
		}
	}
	return section
}

func sectionOf(host string) Section {
	suffix, icann := publicsuffix.PublicSuffix(host)
	switch {
	case suffix != host:
		return NotSuffix
	case icann:
		return ICANN
	case strings.IndexByte(host, '.') >= 0:
		return Private
	default:
		return Unlisted
	}
}

// IsPublicSuffix reports whether host, in normal form, is a registry's suffix.
func IsPublicSuffix(host string) bool { return SuffixSection(host) == ICANN }
