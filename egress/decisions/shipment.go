package decisions

// A Shipment is a batch on its way from an edge to control, in order.
type Shipment struct {
	Spool string `json:"spool"` // which file the sequence numbers belong to
	Rows  []Row  `json:"rows"`
	Lost  uint64 `json:"lost"` // how many lines the spool could not keep so far
}

// Acked is the answer: everything up to Seq is in the store.
type Acked struct {
	Seq uint64 `json:"seq"`
}
