// Command app is the application behind a tunnel, in the tests: an HTTP server that the files API carries into a sandbox.
//
//	app ADDRESS    listens there; the file listening appears in the working folder once it does
//
// It answers with the request that it received, as JSON. /ws echoes messages, /events says one every tenth of a second until
// the client leaves, /moved redirects to what it believes to be its own address.
package main
