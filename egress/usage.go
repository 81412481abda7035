package egress

// A Usage is how many bytes an org moved in a month, as one edge counted. It only grows.
type Usage struct {
	Org   string `json:"org_id"`
	Month string `json:"month"` // of UTC's calendar, like 2026-12
	In    int64  `json:"bytes_in"`
	Out   int64  `json:"bytes_out"`
}
