// Command sender says what a row of the bank says, from inside a sandbox: exact bytes where a library would be too polite.
//
//	sender JOB.json          plays the cases of the file, one after another; those marked slow side by side at the end
//	sender check <JOB.json   reads a job and says what is wrong with it
//
// It prints one line of JSON per case: when it began and ended, and what each step came to. An outcome is a word or a few:
// a status, "nxdomain", "reset", "eof", "alert: access denied", an address, what came back. A step that fails ends its case.
//
// On the path transparent a connection goes where its name leads; on explicit it asks the proxy of the job for it (CONNECT),
// on socks by SOCKS5; h2 is transparent with HTTP/2 for what "ask" says.
package main
