package secrets

import (
	"net/http"
	"strings"
	"testing"
)

// What public APIs take credentials under, in the spelling of their documentation.
func TestNamesOfCredentials(t *testing.T) {
	headers := `Authorization Proxy-Authorization Cookie Cookie2 X-Api-Key Api-Key Apikey X-Apikey X-Api-Token X-Auth-Token X-Auth-Key
		X-Access-Token X-Token X-Goog-Api-Key X-Amz-Security-Token X-Github-Token Private-Token Job-Token Deploy-Token X-Gitlab-Token
		X-Vault-Token X-Shopify-Access-Token X-Figma-Token X-Session-Token X-Secret X-Api-Secret X-Client-Secret X-Subscription-Token
		Ocp-Apim-Subscription-Key X-Rapidapi-Key Dd-Api-Key Dd-Application-Key X-Honeycomb-Team X-Consumer-Key X-Functions-Key
		X-Ms-Authorization-Auxiliary Xi-Api-Key X-Amz-Date Circle-Token Openai-Session-Id X-Csrf-Token Key X-Access-Key X-Secret-Key
		Fastly-Key X-Insert-Key X-Query-Key X-License-Key X-Lc-Key X-Mbx-Apikey X-Bapi-Api-Key Cb-Access-Key Cb-Access-Passphrase
		X-Trackertoken X-Nuget-Apikey X-Chatworktoken X-Plex-Token X-Emby-Authorization X-Jfrog-Art-Api X-Parse-Rest-Api-Key X-Parse-Master-Key
		X-Sentry-Auth X-Registry-Auth X-Registry-Config X-Redmine-Api-Key X-Gitea-Otp X-Github-Otp Npm-Otp X-Hub-Signature-256 Signature
		Signature-Input X-Ops-Authorization-1 X-Hasura-Admin-Secret X-Naver-Client-Secret X-Goog-Iap-Jwt-Assertion X-Riot-Token
		X-Ms-Token-Aad-Id-Token X-Forwarded-Access-Token X-Original-Authorization Cf-Access-Client-Id Cf-Access-Client-Secret
		X-Goog-Authenticated-User-Email X-Serverless-Authorization X-Vercel-Protection-Bypass Developer-Token X-Amz-Signature
		x_api_key X_Auth_Token HTTP_AUTHORIZATION X.Api.Key X-API-KEY x-api-key X-Api-Key-2 Api-Token1 X-Zm-Secret X-Consul-Token X-Sid
		X-Session X-Session-Id Sessionid`
	// These choose the account.
	headers += ` Openai-Organization OpenAI-Project X-Goog-User-Project Stripe-Account X-Scope-Orgid Chatgpt-Account-Id Sudo Impersonate-User
		Impersonate-Extra-Scopes Remote-User X-Webauth-User X-Forwarded-User`
	for name := range strings.FieldsSeq(headers) {
		if !carrierHeader(name) {
			t.Errorf("header %s is taken for an ordinary one", name)
		}
	}
	for key := range strings.FieldsSeq(`api_key apikey api-key key token access_token auth_token auth authorization id_token refresh_token private_token
		session_token sessionid secret client_secret password passwd pwd jwt sig signature x-amz-signature x-amz-credential
		x-amz-security-token x-goog-signature x-goog-credential awsaccesskeyid googleaccessid subscription-key X-Amz-Signature AWSAccessKeyId
		AccessKeyId accessKeyId sid ACCESS_TOKEN Token user[password] filter[token] token[] oauth_token oauth_consumer_key id_token_hint hapikey sign
		q-signature session_id PHPSESSID job_token personal_access_token sentry_key writeKey X-Amz-Date X-Amz-SignedHeaders pass
		user_pass ticket SAMLResponse samlrequest_signature client_assertion apiKey2 accessToken APIKey`) {
		if !carrierKey(key) {
			t.Errorf("query key %s is taken for an ordinary one", key)
		}
	}
}

// What ordinary clients send without credentials. A rule that blocks must not meet any of it.
func TestOrdinaryNames(t *testing.T) {
	for client, headers := range map[string]string{
		"curl, wget, apt": `Accept Accept-Encoding Accept-Language Cache-Control Range If-Range If-Modified-Since If-None-Match Pragma User-Agent Via
			Acquire-By-Hash Expect Te Trailer Max-Forwards From`,
		"git, git-lfs":   `Git-Protocol Content-Type Content-Encoding Accept Pragma X-Git-Request-Id`,
		"npm":            `npm-auth-type npm-scope npm-session npm-command npm-in-ci pacote-version pacote-req-type pacote-pkg-id pacote-integrity Referer`,
		"pip, uv, cargo": `If-None-Match Cache-Control X-Pypi-Last-Serial Cargo-Protocol`,
		"NuGet, Maven":   `X-NuGet-Session-Id X-NuGet-Client-Version X-NuGet-Protocol-Version X-Checksum-Sha1 X-Checksum-Md5`,
		"Go":             `Disable-Module-Fetch Go-Sumdb`,
		"Docker":         `Docker-Distribution-Api-Version Docker-Content-Digest Content-Range`,
		"browsers": `Sec-Ch-Ua Sec-Ch-Ua-Mobile Sec-Ch-Ua-Platform Sec-Ch-Ua-Full-Version-List Sec-Fetch-Site Sec-Fetch-Mode Sec-Fetch-User
			Sec-Fetch-Dest Sec-Fetch-Storage-Access Sec-Purpose Sec-Gpc Upgrade-Insecure-Requests X-Requested-With Dnt Priority Save-Data Origin Referer
			Access-Control-Request-Method Access-Control-Request-Headers Sec-Websocket-Key Sec-Websocket-Version Sec-Websocket-Extensions
			Sec-Websocket-Protocol X-Client-Data Service-Worker Last-Event-Id Device-Memory Downlink Rtt Ect Viewport-Width Sec-Browsing-Topics`,
		"OpenAI and Anthropic": `X-Stainless-Lang X-Stainless-Package-Version X-Stainless-Os X-Stainless-Arch X-Stainless-Runtime X-Stainless-Runtime-Version
			X-Stainless-Retry-Count X-Stainless-Timeout X-Stainless-Async X-Stainless-Helper-Method X-Stainless-Raw-Response
			Anthropic-Version Anthropic-Beta Anthropic-Dangerous-Direct-Browser-Access Openai-Beta X-App Idempotency-Key`,
		"MCP": `Mcp-Session-Id Mcp-Protocol-Version Last-Event-Id`,
		"AWS": `amz-sdk-invocation-id amz-sdk-request x-amz-content-sha256 x-amz-user-agent X-Amz-Target X-Amz-Acl X-Amz-Meta-Author X-Amz-Checksum-Mode
			X-Amz-Checksum-Crc32 X-Amz-Sdk-Checksum-Algorithm X-Amz-Storage-Class X-Amz-Copy-Source X-Amz-Decoded-Content-Length X-Amz-Trailer
			X-Amz-Server-Side-Encryption X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id X-Amz-Server-Side-Encryption-Customer-Key X-Amzn-Trace-Id`,
		"Google":    `X-Goog-Api-Client X-Goog-Request-Params X-Goog-Fieldmask X-Goog-Encryption-Key X-Goog-Hash X-Upload-Content-Type Grpc-Timeout Grpc-Accept-Encoding`,
		"Azure":     `X-Ms-Version X-Ms-Date X-Ms-Client-Request-Id X-Ms-Blob-Type X-Ms-Documentdb-Partitionkey X-Ms-Continuation X-Ms-Encryption-Key`,
		"GitHub":    `X-Github-Api-Version X-Github-Media-Type`,
		"Atlassian": `X-Atlassian-Token`,
		"VS Code":   `X-Market-Client-Id X-Market-User-Id VSCode-SessionId`,
		"tracing":   `Traceparent Tracestate Baggage Sentry-Trace X-B3-Traceid X-Datadog-Trace-Id X-Cloud-Trace-Context Request-Id X-Correlation-Id X-Request-Id`,
		"everything": `X-Forwarded-For X-Forwarded-Proto X-Real-Ip Forwarded Prefer Notion-Version X-Author X-Keyboard X-Monkey Cache-Key Sort-Key Partition-Key
			X-Next-Token Authority Tus-Resumable Upload-Offset Upload-Metadata Dropbox-Api-Arg X-Http-Method-Override X-Assigned-To`,
	} {
		for name := range strings.FieldsSeq(headers) {
			if carrierHeader(http.CanonicalHeaderKey(name)) {
				t.Errorf("%s: header %s is taken for a credential", client, name)
			}
		}
	}
	for client, keys := range map[string]string{
		"lists": `page_token pageToken nextPageToken next_token NextToken continuation-token continuation_token syncToken sync_token resumeToken cursor starting_token
			$skiptoken $deltatoken pagination_token PaginationToken page per_page limit offset since order sort sort_key sortKey`,
		"S3": `list-type prefix marker delimiter max-keys start-after encoding-type fetch-owner key-marker version-id-marker upload-id-marker versionId
			uploadId partNumber x-id response-content-disposition acl policy tagging`,
		"Kubernetes and CouchDB": `continue resourceVersion labelSelector fieldManager startkey endkey start_key startkey_docid keys include_docs`,
		"git, Go, npm":           `service go-get ref sha path recursive write rev text size from quality`,
		"Jira and SonarQube":     `projectKey issueKey componentKeys ticket_id session_count`,
		"everything": `author authors q query search keyword keywords monkey hotkey id ids name tokens max_tokens maxTokens tokenize token_type grant_type
			auth_type SignatureVersion SignatureMethod password_policy passive compass design assign assignee design_key signed side login
			user username email redirect_uri state code client_id appid model stream format lang locale country v alt fields $filter utm_source
			primary_key foreign_key cache_key group_key bypass passport cookies secretary authored turkey`,
	} {
		for key := range strings.FieldsSeq(keys) {
			if carrierKey(key) {
				t.Errorf("%s: query key %s is taken for a credential", client, key)
			}
		}
	}
	for name := range common { // a shortcut may not skip a rule
		if carrier(name, true) {
			t.Errorf("%s is common, and taken for a credential", name)
		}
	}
}

func TestWebSocketProtocols(t *testing.T) {
	for list, want := range map[string]bool{
		"realtime, openai-insecure-api-key.sk-x":               true,
		"base64url.bearer.authorization.k8s.io.eA, v4.channel": true,
		"openai-organization.org-x":                            true,
		"access_token, x":                                      true,
		"chat, " + strings.Repeat("x", 41):                     true,
		"chat, " + strings.Repeat("x", 40):                     false,
		"realtime, openai-beta.realtime-v1":                    false,
		"graphql-transport-ws":                                 false,
		"v5.channel.k8s.io,SPDY/3.1+portforward.k8s.io":        false,
		"wamp.2.json.batched, v12.stomp":                       false,
		"mqtt":                                                 false,
		"aws-appsync-event-ws":                                 false,
		"":                                                     false,
	} {
		if got := inHeader("Sec-Websocket-Protocol", []string{list}); got != want {
			t.Errorf("%q: %v", list, got)
		}
	}
}

// Cutting never panics, keeps every letter and digit, and doesn't care for case at a word's start.
func FuzzCut(f *testing.F) {
	f.Add("X-Api-Key")
	f.Add("pageToken[]2")
	f.Fuzz(func(t *testing.T, name string) {
		whole, words := cut(name, nil)
		if strings.Join(words, "") != whole || whole != strings.ToLower(whole) {
			t.Fatalf("%q: %q, %q", name, whole, words)
		}
		if carrierKey(name) != carrierKey(name+"-") {
			t.Fatalf("%q and with a dash behind it differ", name)
		}
	})
}

// BenchmarkNames watches what each field of each opened request costs.
func BenchmarkNames(b *testing.B) {
	for _, name := range []string{"User-Agent", "X-Stainless-Package-Version", "X-Api-Key"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				carrierHeader(name)
			}
		})
	}
}
