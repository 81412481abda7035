package egress

import "time"

// An Ask is a request for access, as the sandbox makes it. It names one host.
type Ask struct {
	Host     string   `json:"host"`
	Port     uint16   `json:"port,omitempty"`     // default: the protocol's
	Protocol string   `json:"protocol,omitempty"` // default https
	Methods  []string `json:"methods,omitempty"`  // for width url; default GET
	Paths    []string `json:"paths,omitempty"`    // for width url; a path, or one that ends in /**
	Width    string   `json:"width,omitempty"`    // host or url; default url if there are paths, else host
	Why      string   `json:"why"`
	For      string   `json:"for,omitempty"` // 10m, 1h; default 1h, at most 24h
}

// The widths of an ask.
const (
	WidthHost = "host" // everything on the host and port
	WidthURL  = "url"  // only the methods and paths that are named
)

// An Access is a request for access as it stands.
type Access struct {
	ID        string    `json:"id"`    // req_<uuidv7>
	State     string    `json:"state"` // open, approved, denied, expired
	Host      string    `json:"host"`
	Port      uint16    `json:"port"`
	Protocol  string    `json:"protocol"`
	Methods   []string  `json:"methods,omitempty"`
	Paths     []string  `json:"paths,omitempty"`
	Width     string    `json:"width"`
	For       string    `json:"for"`
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at"`       // of an open one, when nobody will decide any more; of an approved one, of the access
	Reason    string    `json:"reason,omitempty"` // the approver's words
	// Approver says whether somebody is there who would decide soon: only then waiting is of use.
	Approver bool `json:"approver_connected"`
}
