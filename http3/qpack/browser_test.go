package qpack

// browser returns the fields of a request as Chromium sends them for a page.
func browser(path string) []Field {
	return []Field{
		{Name: ":method", Value: "GET"},
		{Name: ":authority", Value: "www.example.com"},
		{Name: ":scheme", Value: "https"},
		{Name: ":path", Value: path},
		{Name: "cache-control", Value: "max-age=0"},
		{Name: "sec-ch-ua", Value: `"Not)A;Brand";v="8", "Chromium";v="138", "Google Chrome";v="138"`},
		{Name: "sec-ch-ua-mobile", Value: "?0"},
		{Name: "sec-ch-ua-platform", Value: `"Linux"`},
		{Name: "upgrade-insecure-requests", Value: "1"},
		{Name: "user-agent", Value: "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/138.0.0.0 Safari/537.36"},
		{Name: "accept", Value: "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8,application/signed-exchange;v=b3;q=0.7"},
		{Name: "sec-fetch-site", Value: "none"},
		{Name: "sec-fetch-mode", Value: "navigate"},
		{Name: "sec-fetch-user", Value: "?1"},
		{Name: "sec-fetch-dest", Value: "document"},
		{Name: "accept-encoding", Value: "gzip, deflate, br, zstd"},
		{Name: "accept-language", Value: "en-US,en;q=0.9,de;q=0.8"},
		{Name: "priority", Value: "u=0, i"},
		{Name: "cookie", Value: "session=0123456789abcdef0123456789abcdef"},
		{Name: "if-none-match", Value: `W/"5e15153d-120f"`},
	}
}
