package role

// Methods that edge calls on control.
const (
	ControlDecisions    = "decisions"    // decisions.Shipment -> decisions.Acked
	ControlIntermediate = "intermediate" // IntermediateRequest -> Intermediate
)

// IntermediateRequest asks for a certificate of an org's authority for the edge's own key.
type IntermediateRequest struct {
	Org string `json:"org"`
	Key []byte `json:"key"` // the public key, PKIX in DER
}

// Intermediate is the certificate, and the root above it, in DER.
type Intermediate struct {
	Chain [][]byte `json:"chain"`
}
