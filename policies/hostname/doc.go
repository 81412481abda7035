// Package hostname is the one form in which host names are judged, compared, looked up and recorded.
//
//	name, err := hostname.Normalize("WWW.Example.com.") // "www.example.com"
//
// The same function runs when a rule is saved and when a request is judged, so that no spelling lies between them.
// A label has letters, digits, hyphens inside and underscores; an A-label must be the only spelling of its Unicode form.
//
// # Security invariants
//
//   - HN-1: an address, in any spelling that some resolver understands, is not a host name (TestAddressesAreNotNames).
//   - HN-2: every accepted spelling of a name has the same normal form, and the form is its own (TestOneNameOneForm, FuzzNormalize).
//   - HN-3: user information, ports, NUL and other bytes beside the name refuse it (TestMoreThanANameIsRefused).
//
// # Not here
//
// Which names are allowed. Splitting a host from its port: the caller does it, strictly, before.
//
// # Failure
//
// A name that can't be read in one way is an error: ErrInvalid, or ErrAddress. The public suffix list is compiled in;
// a suffix younger than the build is Unlisted or nobody's.
package hostname
