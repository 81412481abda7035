package main

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
)

// A job is what the runner hands over.
type job struct {
	HTTP  door   `json:"http"`
	SOCKS door   `json:"socks"`
	Cases []kase `json:"cases"`
}

// A door is where an attached sandbox comes in, over TLS.
type door struct {
	At   string `json:"at"`   // ADDR:PORT
	Name string `json:"name"` // of its certificate
	CA   string `json:"ca"`   // PEM
	User string `json:"user"`
	Pass string `json:"pass"`
}

// A kase is one thing that is tried.
type kase struct {
	ID    string `json:"id"`
	Path  string `json:"path"`
	Slow  bool   `json:"slow"`
	Limit int    `json:"limit"` // milliseconds for each step, 8000 if not given
	Do    []step `json:"do"`
}

// A step has exactly one of these fields set.
type step struct {
	Connect string      `json:"connect,omitempty"` // NAME:PORT or ADDR:PORT, by the case's path
	Dial    string      `json:"dial,omitempty"`    // the same, but never by a proxy
	Early   string      `json:"early,omitempty"`   // the same as connect, but what is sent first goes out with the door's own messages
	TLS     *tlsStep    `json:"tls,omitempty"`
	Send    string      `json:"send,omitempty"`
	Hex     string      `json:"hex,omitempty"`
	Repeat  *repeat     `json:"repeat,omitempty"`
	Read    string      `json:"read,omitempty"` // answer, line, some, end, or a text to wait for
	Shut    bool        `json:"shut,omitempty"` // the sending side
	Pause   int         `json:"pause,omitempty"`
	Ask     *ask        `json:"ask,omitempty"`
	Frames  []frame     `json:"frames,omitempty"` // of HTTP/2, after the preface
	DNS     *dnsStep    `json:"dns,omitempty"`
	UDP     *udpStep    `json:"udp,omitempty"`
	Scan    *scan       `json:"scan,omitempty"`
	Raw     *rawStep    `json:"raw,omitempty"`
	Socket  *websocket  `json:"websocket,omitempty"`
	Many    *many       `json:"many,omitempty"`
	Keys    *keyUpdates `json:"keys,omitempty"` // after a handshake
	Run     []string    `json:"run,omitempty"`  // a program of the image, with its output
}

type tlsStep struct {
	SNI     string   `json:"sni"`
	ALPN    []string `json:"alpn"`
	Chunk   int      `json:"chunk"`   // bytes per TCP write of the hello
	Records int      `json:"records"` // TLS records that the hello is cut into
	Pad     int      `json:"pad"`     // bytes by which the hello is made longer
	ECH     string   `json:"ech"`     // the name inside an encrypted hello; SNI is the one outside
	Resume  string   `json:"resume"`  // a first handshake under this name, whose ticket is used for SNI
	Min13   bool     `json:"min13"`
	Verify  bool     `json:"verify"`
}

type repeat struct {
	Text  string `json:"text"`
	Times int    `json:"times"`
	Every int    `json:"every"` // milliseconds between two
}

// An ask is one or more HTTP requests on one connection.
type ask struct {
	To       string `json:"to"`
	SNI      string `json:"sni"`
	Clear    bool   `json:"clear"`
	Absolute bool   `json:"absolute"` // on explicit: not CONNECT, but the absolute form
	Again    int    `json:"again"`    // as often, on new connections, and how often each answer came
	request
	More []request `json:"more"`
}

type request struct {
	Method  string      `json:"method"`
	Target  string      `json:"target"`
	Host    string      `json:"host"`
	Headers [][2]string `json:"headers"`
	Body    string      `json:"body"`
}

// A frame is written as it stands; Fields makes the block of a HEADERS or CONTINUATION frame.
type frame struct {
	Type   uint8       `json:"type"`
	Flags  uint8       `json:"flags"`
	Stream uint32      `json:"stream"`
	Fields [][2]string `json:"fields"`
	Hex    string      `json:"hex"`
	Times  int         `json:"times"`
}

type dnsStep struct {
	Server string `json:"server"` // ADDR or ADDR:PORT, default the one of resolv.conf
	Name   string `json:"name"`
	Type   string `json:"type"` // default A
	TCP    bool   `json:"tcp"`
	Hex    string `json:"hex"`   // a message as it stands
	Split  bool   `json:"split"` // over TCP, byte by byte
	Twice  bool   `json:"twice"` // over TCP, two queries in one write
	Times  int    `json:"times"` // each under a label of its own
}

type udpStep struct {
	To   string `json:"to"`
	Send string `json:"send"`
}

type scan struct {
	To    string `json:"to"`
	First int    `json:"first"`
	Last  int    `json:"last"`
}

type rawStep struct {
	To    string `json:"to"`
	Proto int    `json:"proto"`
	Hex   string `json:"hex"`
}

type websocket struct {
	URL  string `json:"url"`
	Send string `json:"send"`
	Stay int    `json:"stay"` // milliseconds between the message and a second one
}

// many opens connections that say Send and nothing more, and tells how many are left after a while.
type many struct {
	To    string `json:"to"`
	Count int    `json:"count"`
	Send  string `json:"send"`
	Hex   string `json:"hex"`
	After int    `json:"after"` // milliseconds
}

// A result is a case that was played.
type result struct {
	ID    string `json:"id"`
	Start int64  `json:"start"` // nanoseconds since 1970
	End   int64  `json:"end"`
	Steps []said `json:"steps"`
}

// said is what a step came to.
type said struct {
	OK      bool   `json:"ok"`
	Outcome string `json:"outcome"`
	Body    string `json:"body,omitempty"`
	Head    string `json:"head,omitempty"`
	MS      int64  `json:"ms"`
}

func readJob(data []byte) (*job, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	j := new(job)
	if err := d.Decode(j); err != nil {
		return nil, err
	}
	for _, c := range j.Cases {
		for i, s := range c.Do {
			data, _ := json.Marshal(s)
			var fields map[string]json.RawMessage
			if json.Unmarshal(data, &fields); len(fields) != 1 {
				return nil, fmt.Errorf("%s: step %d has %d things to do", c.ID, i+1, len(fields))
			}
			if _, err := unhex(s.Hex); err != nil {
				return nil, fmt.Errorf("%s: step %d: %w", c.ID, i+1, err)
			}
		}
	}
	return j, nil
}

func unhex(s string) ([]byte, error) { return hex.DecodeString(strings.Join(strings.Fields(s), "")) }
