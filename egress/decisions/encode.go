package decisions

import (
	"encoding/json"
	"strconv"
	"time"
)

// AppendJSON appends d as encoding/json would write it. Each decision is encoded three times on its way from a verdict to the
// store, and by reflection that costs more than anything else which is done with it.
func (d *Decision) AppendJSON(b []byte) []byte {
	b = appendString(append(b, `{"id":`...), d.ID)
	b = appendTime(append(b, `,"time":`...), d.Time)
	b = appendString(append(b, `,"org_id":`...), d.Org)
	b = appendString(append(b, `,"sandbox_id":`...), d.Sandbox)
	b = strconv.AppendUint(append(b, `,"incarnation":`...), d.Incarnation, 10)
	b = appendText(b, "flow_id", d.Flow)
	b = appendString(append(b, `,"layer":`...), d.Layer)
	b = appendText(b, "level", d.Level)
	b = appendString(append(b, `,"verdict":`...), d.Verdict)
	b = appendString(append(b, `,"reason":`...), d.Reason)
	b = appendText(b, "rule", d.Rule)
	b = appendText(b, "rule_layer", d.RuleLayer)
	b = strconv.AppendUint(append(b, `,"policy_revision":`...), d.Revision, 10)
	b = strconv.AppendInt(append(b, `,"policy_version":`...), d.Version, 10)
	b = appendText(b, "host", d.Host)
	b = appendText(b, "address", d.Addr)
	b = appendNumber(b, "port", int64(d.Port))
	b = appendText(b, "protocol", d.Protocol)
	b = appendText(b, "method", d.Method)
	b = appendText(b, "path", d.Path)
	b = appendUses(b, d.Secrets)
	b = appendList(b, "foreign", d.Foreign)
	b = appendList(b, "foreign_hash", d.ForeignHash)
	if d.Count != 0 {
		b = strconv.AppendUint(append(b, `,"count":`...), d.Count, 10)
	}
	if !d.Until.IsZero() {
		b = appendTime(append(b, `,"until":`...), d.Until)
	}
	if d.Closed {
		b = append(b, closedText...)
	}
	b = appendNumber(b, "status", int64(d.Status))
	b = appendNumber(b, "bytes_out", d.BytesOut)
	b = appendNumber(b, "bytes_in", d.BytesIn)
	b = appendNumber(b, "duration_ms", d.DurationMS)
	b = appendText(b, "error", d.Error)
	b = appendText(b, "agent_guidance", d.Guidance)
	return append(b, '}')
}

// closedText is in the text of a closed decision, and of no other: within a string its quotes would be escaped.
const closedText = `,"closed":true`

func appendUses(b []byte, uses []Use) []byte {
	for i, u := range uses {
		if i == 0 {
			b = append(b, `,"secrets":[`...)
		} else {
			b = append(b, ',')
		}
		b = appendString(append(b, `{"secret_id":`...), u.Secret)
		b = strconv.AppendInt(append(b, `,"version":`...), u.Version, 10)
		b = append(appendString(append(b, `,"place":`...), u.Place), '}')
	}
	if len(uses) > 0 {
		b = append(b, ']')
	}
	return b
}

func appendList(b []byte, field string, all []string) []byte {
	if len(all) == 0 {
		return b
	}
	b = append(append(append(b, `,"`...), field...), `":[`...)
	for i, s := range all {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, s)
	}
	return append(b, ']')
}

// appendText appends a field that is left out when it is empty.
func appendText(b []byte, field, value string) []byte {
	if value == "" {
		return b
	}
	return appendString(append(append(append(b, `,"`...), field...), `":`...), value)
}

func appendNumber(b []byte, field string, value int64) []byte {
	if value == 0 {
		return b
	}
	return strconv.AppendInt(append(append(append(b, `,"`...), field...), `":`...), value, 10)
}

// appendString writes what needs no escaping by itself, which is nearly everything.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c >= 0x7f || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			escaped, err := json.Marshal(s)
			if err != nil {
				panic(err) // of a string there is none
			}
			return append(b, escaped...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

// appendTime writes times as their own MarshalJSON does; ours have a year of four digits.
func appendTime(b []byte, t time.Time) []byte {
	return append(t.AppendFormat(append(b, '"'), time.RFC3339Nano), '"')
}
