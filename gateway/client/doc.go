// Package client calls the API for the command line.
//
//	c, err := client.Open(infoFile)      // address and key of a running portreeve
//	err = c.Do(ctx, "POST", "/sandbox/create", in, &out)
//
// # Security invariants
//
//   - CL-1: the key goes only to the address that the info file or the environment names, over no redirect (TestRedirectsAreNotFollowed).
//   - CL-2: the key is in no error (TestErrorsHoldNoKey).
//
// # Not here
//
// What the commands print: cmd/portreeve.
//
// # Failure
//
// A refusal comes back as *Problem with its code, request id and the fields it names.
package client
