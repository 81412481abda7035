package access

import (
	"net/http"
	"net/url"
	"strings"
)

// Strip removes our token from the query and from the referrer, and our cookies from r. Headers of ours don't pass the forwarder, in any spelling.
func Strip(r *http.Request) {
	if rest, tokens := cutQuery(r.URL.RawQuery); len(tokens) > 0 {
		r.URL.RawQuery, r.URL.ForceQuery = rest, false
	}
	for i, from := range r.Header["Referer"] { // clients that follow a redirect may say where they come from
		if page, query, ok := strings.Cut(from, "?"); ok {
			if rest, tokens := cutQuery(query); len(tokens) > 0 {
				r.Header["Referer"][i] = strings.TrimSuffix(page+"?"+rest, "?")
			}
		}
	}
	lines := r.Header["Cookie"]
	kept := lines[:0]
	for _, line := range lines {
		if line = stripCookies(line); line != "" {
			kept = append(kept, line)
		}
	}
	if len(kept) == 0 {
		delete(r.Header, "Cookie")
	} else {
		r.Header["Cookie"] = kept
	}
}

// cutQuery returns the query without our key, the rest byte for byte, and the values that it had.
func cutQuery(query string) (rest string, tokens []string) {
	if !strings.Contains(query, Query) && !strings.Contains(query, "%") {
		return query, nil
	}
	var kept []string
	for pair := range strings.SplitSeq(query, "&") {
		key, value, _ := strings.Cut(pair, "=")
		if k, err := url.QueryUnescape(key); err != nil || k != Query {
			kept = append(kept, pair)
			continue
		}
		if v, err := url.QueryUnescape(value); err == nil {
			value = v
		}
		tokens = append(tokens, value)
	}
	if tokens == nil {
		return query, nil
	}
	return strings.Join(kept, "&"), tokens
}

// stripCookies removes our cookies from one Cookie line, the rest as it was.
func stripCookies(line string) string {
	if !containsFold(line, "portreeve-") {
		return line
	}
	var kept []string
	for pair := range strings.SplitSeq(line, ";") {
		name, _, _ := strings.Cut(pair, "=")
		if !ours(name) {
			kept = append(kept, pair)
		}
	}
	return strings.Trim(strings.Join(kept, ";"), " \t")
}

// CleanSetCookie holds an app's cookies to its own host and away from our names.
func CleanSetCookie(lines []string) []string {
	kept := lines[:0]
	for _, line := range lines {
		name, value, _ := strings.Cut(line, "=")
		if ours(name) || strings.Trim(name, " \t") == "" && ours(value) {
			continue // without a name, the value is what a browser sends back, name and all
		}
		kept = append(kept, withoutDomain(line))
	}
	return kept
}

// ours reports whether a cookie of this name is ours, with any of the prefixes that browsers know.
func ours(name string) bool {
	name = strings.ToLower(strings.Trim(name, " \t"))
	for {
		cut := name
		for _, prefix := range [...]string{"__host-http-", "__host-", "__secure-", "__http-"} {
			cut = strings.TrimPrefix(cut, prefix)
		}
		if cut == name {
			break
		}
		name = cut
	}
	return strings.HasPrefix(name, "portreeve-")
}

// withoutDomain removes Domain attributes.
func withoutDomain(line string) string {
	if !containsFold(line, "domain") {
		return line
	}
	var b strings.Builder
	for i, part := range strings.Split(line, ";") {
		attribute, _, _ := strings.Cut(part, "=")
		if i > 0 && strings.EqualFold(strings.Trim(attribute, " \t"), "domain") {
			continue
		}
		if i > 0 {
			b.WriteByte(';')
		}
		b.WriteString(part)
	}
	return b.String()
}

func containsFold(s, lower string) bool {
	for i := 0; i+len(lower) <= len(s); i++ {
		if strings.EqualFold(s[i:i+len(lower)], lower) {
			return true
		}
	}
	return false
}
