package http3

import (
	"net/http"
	"strings"
)

// Names of fields have two forms: in lower case on the wire, canonical in http.Header. These maps have the
// common ones, so that neither form is made anew for each message.
var canonicalNames, lowerNames = commonNames()

func commonNames() (canonical, lower map[string]string) {
	canonical, lower = map[string]string{}, map[string]string{}
	const names = `accept accept-charset accept-encoding accept-language accept-ranges access-control-allow-credentials
		access-control-allow-headers access-control-allow-methods access-control-allow-origin access-control-expose-headers
		access-control-max-age access-control-request-headers access-control-request-method age allow alt-svc alt-used authorization
		cache-control capsule-protocol connection content-disposition content-encoding content-language content-length
		content-location content-range content-security-policy content-type cookie cross-origin-embedder-policy
		cross-origin-opener-policy cross-origin-resource-policy date dnt early-data etag expect expires forwarded from host
		if-match if-modified-since if-none-match if-range if-unmodified-since keep-alive last-modified link location max-forwards
		origin permissions-policy pragma priority proxy-authenticate proxy-authorization proxy-connection purpose range referer
		referrer-policy retry-after sec-ch-ua sec-ch-ua-arch sec-ch-ua-mobile sec-ch-ua-model sec-ch-ua-platform sec-fetch-dest
		sec-fetch-mode sec-fetch-site sec-fetch-user sec-websocket-extensions sec-websocket-key sec-websocket-protocol
		sec-websocket-version server server-timing set-cookie strict-transport-security te timing-allow-origin trailer
		transfer-encoding upgrade upgrade-insecure-requests user-agent vary via warning www-authenticate x-content-type-options
		x-forwarded-for x-forwarded-host x-forwarded-proto x-frame-options x-powered-by x-request-id x-requested-with
		x-xss-protection traceparent tracestate`
	for name := range strings.FieldsSeq(names) {
		c := http.CanonicalHeaderKey(name)
		canonical[name], lower[c] = c, name
	}
	return canonical, lower
}

func canonicalName(name string) string {
	if c, found := canonicalNames[name]; found {
		return c
	}
	return http.CanonicalHeaderKey(name)
}

func lowerName(name string) string {
	if l, found := lowerNames[name]; found {
		return l
	}
	return strings.ToLower(name)
}
