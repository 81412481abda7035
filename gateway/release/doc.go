// Package release says which version of Portreeve this is.
//
//	fmt.Println(release.Version())
//
// # Security invariants
//
// None.
//
// # Not here
//
// Versions of policies, of secrets and of the store's tables.
//
// # Failure
//
// A program that was not built by the Makefile is "devel", with the revision it was built from where Go knows that.
package release
