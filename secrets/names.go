package secrets

import "strings"

// What carries a credential says so in its name, nearly always. A name is cut into words at punctuation and capitals, and
// compared with the words under which public APIs take credentials: Authorization, X-Api-Key, PRIVATE-TOKEN, X_Auth_Key,
// Ocp-Apim-Subscription-Key, ?access_token=, ?user[password]=. One too many breaks a call, and the decision says where;
// one too few lets another account in silently. What ordinary clients send is in the tests and must stay out.

// credentialWords are carriers wherever they stand in a name.
var credentialWords = set(`auth authorization authentication oauth bearer jwt secret password passwd passphrase passcode pwd
	credential credentials signature sig hmac cookie assertion saml samlresponse otp totp sessionid sessid jsessionid phpsessid
	authkey authtok userpwd`)

// credentialEnds are carriers, too, at the end of a word that has no capitals left to cut at: X-Trackersecret.
var credentialEnds = []string{"secret", "password", "passwd", "signature", "credential", "credentials", "sessionid"}

// aboutWords behind such a word make it a fact about credentials: npm-auth-type, SignatureVersion, token_type.
var aboutWords = set(`type kind method mode scheme provider policy format version count limit length`)

// keyOwners stand before "key" where it opens something. Others don't: sort_key, projectKey, start_key.
var keyOwners = []string{"access", "account", "admin", "api", "app", "application", "auth", "client", "consumer", "developer", "functions",
	"ingest", "ingestion", "licence", "license", "master", "private", "public", "secret", "sentry", "service", "shared", "signing",
	"subscription", "user", "write"}

// plainKeys stand before "key" in headers that are no credentials. There the list is the other way round (Fastly-Key,
// X-Query-Key): headers are few, and a query may hold any word. Customers' encryption keys protect data of the same account.
var plainKeys = set(`cache customer dedup deduplication encryption idempotency ordering partition range routing row sort surrogate`)

// plainTokens stand before "token" where it says where in a list one is.
var plainTokens = []string{"bookmark", "continuation", "continue", "cursor", "delta", "idempotency", "next", "page", "pagination", "prev",
	"previous", "resume", "skip", "start", "starting", "sync"}

// Whole names, without their punctuation.
var wholeNames = set(plainNames + signatureParts + accounts)

const (
	plainNames = `key xkey pass sid xsid ticket xticket session xsession sign xsign awsaccesskeyid googleaccessid sas
		xhoneycombteam xjfrogartapi xregistryconfig xvercelprotectionbypass`

	// The other parts of a signed URL or request: signers send them and nobody else, and half a signature fits nothing.
	signatureParts = ` xamzdate xamzalgorithm xamzexpires xamzsignedheaders xgoogalgorithm xgoogdate xgoogexpires xgoogsignedheaders`

	// These choose the account, or the user, among those that a credential may act for, and a few upstreams ask for nothing else.
	// Which one it is belongs to the grant: a request that needs one has it granted as a value of its own.
	accounts = ` openaiorganization openaiproject xgooguserproject xhfbillto chatgptaccountid stripeaccount stripecontext logincustomerid
		dropboxapiselectuser dropboxapiselectadmin xscopeorgid sudo onbehalfof xonbehalfof remoteuser xremoteuser xwebauthuser
		xforwardeduser xforwardedemail xforwardedclientcert`
)

// wholeBegins begin whole names: what a proxy with a login in front of the upstream would say about the user.
var wholeBegins = []string{"cfaccess", "impersonate", "xgoogauthenticated", "xmsclientprincipal"}

// notCredentials are names that only sound like carriers, and without which ordinary clients don't work.
var notCredentials = set(`
	secwebsocketkey
	xatlassiantoken
	npmsession xnugetsessionid vscodesessionid
	mcpsessionid`)

// The reasons, by line: a handshake's nonce; "no-check", which says that no browser sent it; random numbers of one run of a
// client; a conversation at an MCP server, which must not take it for authentication (MCP specification, "Session Hijacking").

// common are the fields that nearly every request has. They are here for speed only: no rule below meets them.
var common = map[string]bool{"Accept": true, "Accept-Encoding": true, "Accept-Language": true, "Cache-Control": true, "Connection": true,
	"Content-Encoding": true, "Content-Length": true, "Content-Type": true, "Host": true, "If-Modified-Since": true, "If-None-Match": true,
	"Origin": true, "Pragma": true, "Range": true, "Referer": true, "Te": true, "User-Agent": true}

func set(list string) map[string]bool {
	words := make(map[string]bool)
	for w := range strings.FieldsSeq(list) {
		words[w] = true
	}
	return words
}

// carrierHeader reports whether a header field of that name is taken for a credential.
func carrierHeader(name string) bool { return !common[name] && carrier(name, true) }

// carrierKey reports the same of a query key.
func carrierKey(name string) bool { return carrier(name, false) }

func carrier(name string, header bool) bool {
	var room [12]string
	whole, words := cut(name, room[:0])
	switch {
	case notCredentials[whole]:
		return false
	case wholeNames[whole]:
		return true
	}
	for _, begin := range wholeBegins {
		if strings.HasPrefix(whole, begin) {
			return true
		}
	}
	for i, w := range words {
		before, behind := "", ""
		if i > 0 {
			before = words[i-1]
		}
		if i+1 < len(words) {
			behind = words[i+1]
		}
		if !aboutWords[behind] && carrierWord(before, strings.TrimRight(w, "0123456789"), behind, header) {
			return true
		}
	}
	return false
}

// carrierWord judges one word by its neighbours.
func carrierWord(before, w, behind string, header bool) bool {
	if credentialWords[w] || endsIn(w, credentialEnds) {
		return true
	}
	switch w {
	case "session":
		return before != "" && behind == "" || behind == "id"
	case "pass":
		return behind == ""
	case "key":
		if header && before != "" && behind == "" && !plainKeys[before] {
			return true
		}
	}
	if owner, ok := strings.CutSuffix(w, "token"); ok {
		return !endsIn(orElse(owner, before), plainTokens)
	}
	if owner, ok := strings.CutSuffix(w, "key"); ok {
		return endsIn(orElse(owner, before), keyOwners)
	}
	return false
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

func endsIn(w string, ends []string) bool {
	for _, end := range ends {
		if strings.HasSuffix(w, end) {
			return true
		}
	}
	return false
}

// cut returns a name in lower case without punctuation, and its words: those of X-Api-Key, access_token, pageToken.
func cut(name string, words []string) (whole string, _ []string) {
	var room [64]byte
	var marks [12]int
	letters, starts := room[:0], marks[:0]
	apart := true // the next letter begins a word
	for i := range len(name) {
		c := name[i]
		upper := c >= 'A' && c <= 'Z'
		if !upper && (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			apart = true
			continue
		}
		if apart || upper && name[i-1] >= 'a' && name[i-1] <= 'z' {
			starts = append(starts, len(letters))
			apart = false
		}
		if upper {
			c += 'a' - 'A'
		}
		letters = append(letters, c)
	}
	whole = string(letters)
	for i, from := range starts {
		to := len(whole)
		if i+1 < len(starts) {
			to = starts[i+1]
		}
		words = append(words, whole[from:to])
	}
	return whole, words
}
