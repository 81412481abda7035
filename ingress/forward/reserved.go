package forward

import "strings"

// reserved reports whether a header may not be passed on: it is ours, or one by which proxies tell whom a request is from.
// Servers fold "-" and "_" (CGI), some "." too, so all spellings count.
func reserved(name string) bool {
	if len(name) < 3 {
		return false
	}
	switch name[0] | 0x20 {
	case 'x', 'f', 'c', 't', 'v', 'p':
	default:
		return false
	}
	var folded [32]byte
	n := copy(folded[:], name)
	for i, c := range folded[:n] {
		switch {
		case c == '_' || c == '.':
			folded[i] = '-'
		case 'A' <= c && c <= 'Z':
			folded[i] = c | 0x20
		}
	}
	if strings.HasPrefix(string(folded[:n]), "x-portreeve-") || strings.HasPrefix(string(folded[:n]), "x-forwarded-") ||
		strings.HasPrefix(string(folded[:n]), "x-original-") || strings.HasPrefix(string(folded[:n]), "x-envoy-") {
		return true
	}
	if len(name) > len(folded) {
		return false
	}
	switch string(folded[:n]) {
	case "forwarded", "x-forwarded", "x-portreeve", "x-real-ip", "x-client-ip", "x-cluster-client-ip", "x-rewrite-url", "x-host", "x-http-host-override",
		"x-original-url", "x-proxyuser-ip", "true-client-ip", "cf-connecting-ip", "fastly-client-ip", "client-ip", "via", "proxy", "x-scheme", "x-url-scheme":
		return true
	}
	return false
}

// hopByHop reports whether a header, in canonical form, belongs to one connection.
func hopByHop(name string) bool {
	switch name {
	case "Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Authentication-Info",
		"Te", "Trailer", "Transfer-Encoding", "Upgrade", "Http2-Settings":
		return true
	}
	return false
}

// named returns the fields that Connection names, beside those that say nothing.
func named(connection []string) []string {
	var names []string
	for _, line := range connection {
		for token := range strings.SplitSeq(line, ",") {
			token = strings.Trim(token, " \t")
			if token == "" || strings.EqualFold(token, "close") || strings.EqualFold(token, "keep-alive") || strings.EqualFold(token, "upgrade") {
				continue
			}
			names = append(names, token)
		}
	}
	return names
}

func contains(names []string, name string) bool {
	for _, n := range names {
		if strings.EqualFold(n, name) {
			return true
		}
	}
	return false
}

func hasToken(lines []string, token string) bool {
	for _, line := range lines {
		for t := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.Trim(t, " \t"), token) {
				return true
			}
		}
	}
	return false
}
