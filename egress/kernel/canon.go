package kernel

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// A rule is compared as text: each expression's name and its attributes, sorted. The library's own decoder is not
// used, as it cannot read tproxy back and drops what it does not know.

// typeMask takes the flags off an attribute's type.
const typeMask = 0x3fff

// Attributes that hold attributes. The kernel does not flag all of them.
var nested = map[string][]uint16{
	"cmp":       {unix.NFTA_CMP_DATA},
	"immediate": {unix.NFTA_IMMEDIATE_DATA},
	"bitwise":   {unix.NFTA_BITWISE_MASK, unix.NFTA_BITWISE_XOR},
}

// Attributes that are numbers of the moment: counters, and set ids that count only within one batch.
var volatile = map[string][]uint16{
	"counter": {unix.NFTA_COUNTER_BYTES, unix.NFTA_COUNTER_PACKETS, unix.NFTA_COUNTER_PAD},
	"lookup":  {unix.NFTA_LOOKUP_SET_ID},
	"dynset":  {unix.NFTA_DYNSET_SET_ID},
	"limit":   {unix.NFTA_LIMIT_PAD},
}

// wanted is the text of a rule of ours.
func wanted(r rule) ([]string, error) {
	var lines []string
	for _, e := range r {
		b, err := expr.Marshal(unix.NFPROTO_INET, e)
		if err != nil {
			return nil, err
		}
		line, err := canonical(b)
		if err != nil {
			return nil, err
		}
		lines = append(lines, line)
	}
	return lines, nil
}

// found is the text of a rule's expression list as the kernel tells it.
func found(b []byte) ([]string, error) {
	list, err := netlink.UnmarshalAttributes(b)
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, a := range list {
		line, err := canonical(a.Data)
		if err != nil {
			return nil, err
		}
		lines = append(lines, line)
	}
	return lines, nil
}

// canonical renders one expression: its name, then its attributes by number. Attributes that are all zero count as
// absent, as both sides leave out defaults as they like.
func canonical(b []byte) (string, error) {
	name, data, err := nameAndData(b)
	if err != nil {
		return "", err
	}
	inner, err := netlink.UnmarshalAttributes(data)
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	var parts []string
	for _, a := range inner {
		kind := a.Type & typeMask
		if slices.Contains(volatile[name], kind) || allZero(a.Data) {
			continue
		}
		value := hex.EncodeToString(a.Data)
		switch {
		case name == "dynset" && kind == unix.NFTA_DYNSET_EXPR:
			if value, err = canonical(a.Data); err != nil {
				return "", err
			}
			value = "(" + value + ")"
		case slices.Contains(nested[name], kind):
			if value, err = flat(a.Data); err != nil {
				return "", fmt.Errorf("%s: %w", name, err)
			}
		}
		if value != "" {
			parts = append(parts, fmt.Sprintf("%d=%s", kind, value))
		}
	}
	slices.Sort(parts)
	return strings.Join(append([]string{name}, parts...), " "), nil
}

// nameAndData takes an expression apart.
func nameAndData(b []byte) (name string, data []byte, err error) {
	attrs, err := netlink.UnmarshalAttributes(b)
	if err != nil {
		return "", nil, err
	}
	for _, a := range attrs {
		switch a.Type & typeMask {
		case unix.NFTA_EXPR_NAME:
			name = strings.TrimRight(string(a.Data), "\x00")
		case unix.NFTA_EXPR_DATA:
			data = a.Data
		}
	}
	return name, data, nil
}

// flat renders a data attribute, a plain value or a verdict with its chain, which is nested once more.
func flat(b []byte) (string, error) {
	attrs, err := netlink.UnmarshalAttributes(b)
	if err != nil {
		return "", err
	}
	var parts []string
	for _, a := range attrs {
		value := hex.EncodeToString(a.Data)
		if a.Type&typeMask == unix.NFTA_DATA_VERDICT {
			if value, err = verdict(a.Data); err != nil {
				return "", err
			}
		} else if allZero(a.Data) {
			continue
		}
		parts = append(parts, value)
	}
	return strings.Join(parts, ","), nil
}

func verdict(b []byte) (string, error) {
	attrs, err := netlink.UnmarshalAttributes(b)
	if err != nil {
		return "", err
	}
	var code, chain string
	for _, a := range attrs {
		switch a.Type & typeMask {
		case unix.NFTA_VERDICT_CODE:
			code = fmt.Sprint(int32(binary.BigEndian.Uint32(a.Data)))
		case unix.NFTA_VERDICT_CHAIN:
			chain = strings.TrimRight(string(a.Data), "\x00")
		}
	}
	return strings.TrimRight("verdict "+code+" "+chain, " "), nil
}

func allZero(b []byte) bool {
	return !slices.ContainsFunc(b, func(c byte) bool { return c != 0 })
}
