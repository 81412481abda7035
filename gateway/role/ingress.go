package role

// IngressKeys is what control calls on ingress first on each link: TunnelKeys -> {}. The feed of routes follows.
const IngressKeys = "keys"

// TunnelKeys are the keys that ingress holds. They are secret, and in no file of ingress's.
type TunnelKeys struct {
	Certificate []byte `json:"certificate"` // of the development authority, DER
	Key         []byte `json:"key"`         // its key
	Cookie      []byte `json:"cookie"`      // signs the cookies that stand for tunnel tokens
}
