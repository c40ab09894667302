package semantics

// Violation is a rule that a message breaks. It is an error that costs nothing: an attacker decides how often it is needed.
type Violation uint8

// Values of Violation. The zero value is none.
const (
	_ Violation = iota
	BadName
	BadValue
	PseudoAfterField
	PseudoUnknown
	PseudoRepeated
	PseudoMissing
	ConnectionField
	BadTE
	BadLength
	BadMethod
	BadStatus
	BadPath
	BadTarget
	BadAuthority
	BadConnect
	BadProtocol
	BadScheme
	BadTrailer
	Violations // how many there are, with the zero value
)

var violationTexts = [Violations]string{
	BadName:          "a field name that is empty or has a character that is not permitted, such as upper case",
	BadValue:         "a field value with a character that is not permitted",
	PseudoAfterField: "a pseudo-header after a field",
	PseudoUnknown:    "a pseudo-header that does not belong there",
	PseudoRepeated:   "a pseudo-header that comes twice",
	PseudoMissing:    "a pseudo-header is missing",
	ConnectionField:  "a field of the connection, such as Connection or Transfer-Encoding",
	BadTE:            "TE with a value other than trailers",
	BadLength:        "Content-Length is not one number",
	BadMethod:        "the method is no token",
	BadStatus:        "the status is not three digits, or 101",
	BadPath:          "the path is empty or does not begin with a slash",
	BadTarget:        "a character that no request target has",
	BadAuthority:     "the authority is empty, has user information or differs from Host",
	BadConnect:       "CONNECT with a scheme or path, or without an authority",
	BadProtocol:      "an extended CONNECT that was not permitted, or has no method CONNECT",
	BadScheme:        "the scheme is none",
	BadTrailer:       "a trailer field that frames, routes or belongs to the connection",
}

// Error describes the violation.
func (v Violation) Error() string {
	if v == 0 || v >= Violations {
		return "no violation"
	}
	return violationTexts[v]
}
