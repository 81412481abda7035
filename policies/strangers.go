package policies

import (
	"slices"
	"strings"
)

// A place is a kind of host at which strangers can keep or receive data.
type place uint8

const (
	// shelf: the path says whose data it is. Reading does no harm, and neither does a rule that names paths.
	shelf place = iota + 1
	// plot: each name below belongs to a customer. One name is one customer; all names are everybody's.
	plot
	// catcher: made to receive what anybody sends. Also a single name is a stranger's.
	catcher
)

func (p place) String() string {
	switch p {
	case shelf:
		return "anybody can store data under a path of his own"
	case plot:
		return "anybody can own a name there"
	case catcher:
		return "it is made to receive or pass on what anybody sends"
	}
	return "unknown"
}

// The lists of them, by suffix. They can't be complete: they are there so that the well-known ones are not allowed by oversight,
// and decide nothing. Most names stand in one of these, where more can be found:
//
//   - the private section of the Public Suffix List (publicsuffix.org), which names most of the plots;
//   - the vendors' pages on endpoints: docs.aws.amazon.com/general/latest/gr/s3.html, cloud.google.com/storage/docs/request-endpoints,
//     learn.microsoft.com/azure/storage/common/storage-account-overview, developers.cloudflare.com/r2, docs.digitalocean.com/products/spaces,
//     www.backblaze.com/docs, docs.wasabi.com, docs.oracle.com/iaas/api;
//   - lots-project.com, "Living Off Trusted Sites", which lists legitimate sites that are used to carry data out;
//   - the servers of github.com/projectdiscovery/interactsh, and PortSwigger's pages on Collaborator;
//   - ngrok.com/docs, try.cloudflare.com, learn.microsoft.com/azure/developer/dev-tunnels, localtunnel.github.io, tailscale.com/kb on Funnel.
var (
	shelves = setOf(`
	s3.amazonaws.com s3-accelerate.amazonaws.com storage.googleapis.com storage.cloud.google.com www.googleapis.com
	firebasestorage.googleapis.com firestore.googleapis.com content.dropboxapi.com api.dropboxapi.com www.dropbox.com
	dl.dropboxusercontent.com drive.google.com docs.google.com graph.microsoft.com onedrive.live.com api.onedrive.com
	api.box.com upload.box.com app.box.com github.com api.github.com gist.github.com uploads.github.com
	raw.githubusercontent.com gist.githubusercontent.com gitlab.com bitbucket.org api.bitbucket.org codeberg.org
	huggingface.co registry.npmjs.org upload.pypi.org rubygems.org crates.io hub.docker.com registry-1.docker.io ghcr.io
	quay.io pastebin.com paste.ee dpaste.com dpaste.org hastebin.com rentry.co rentry.org ghostbin.com paste.rs ix.io
	sprunge.us termbin.com 0x0.st bashupload.com catbox.moe litterbox.catbox.moe files.catbox.moe file.io gofile.io
	transfer.sh temp.sh tmpfiles.org wetransfer.com anonfiles.com bayfiles.com mega.nz g.api.mega.co.nz mediafire.com
	pixeldrain.com send.vis.ee uguu.se imgur.com api.imgur.com telegra.ph api.telegram.org discord.com discordapp.com
	cdn.discordapp.com slack.com hooks.slack.com api.notion.com www.notion.so api.airtable.com api.trello.com jsonbin.io
	api.jsonbin.io jsonblob.com kvdb.io keyvalue.immanuel.co api.mailgun.net api.sendgrid.com web.archive.org
	script.google.com forms.gle api.paste.ee api.pastebin.com`)
	plots = setOf(`
	s3.amazonaws.com s3-accelerate.amazonaws.com amazonaws.com cloudfront.net awsapprunner.com amplifyapp.com
	elasticbeanstalk.com on.aws storage.googleapis.com googleusercontent.com appspot.com run.app web.app firebaseapp.com
	firebaseio.com cloudfunctions.net core.windows.net blob.core.windows.net file.core.windows.net web.core.windows.net
	azurewebsites.net azureedge.net azurestaticapps.net cloudapp.azure.com azurecontainerapps.io sharepoint.com r2.dev
	r2.cloudflarestorage.com workers.dev pages.dev digitaloceanspaces.com ondigitalocean.app backblazeb2.com wasabisys.com
	oraclecloud.com linodeobjects.com vultrobjects.com scw.cloud contabostorage.com aliyuncs.com myqcloud.com supabase.co
	github.io gitlab.io codeberg.page bitbucket.io githubpreview.dev app.github.dev gitpod.io vercel.app now.sh netlify.app
	surge.sh herokuapp.com fly.dev onrender.com railway.app up.railway.app deno.dev glitch.me repl.co replit.app replit.dev
	stackblitz.io webcontainer.io codesandbox.io csb.app pythonanywhere.com 000webhostapp.com wordpress.com blogspot.com
	weebly.com wixsite.com neocities.org tumblr.com hf.space streamlit.app gradio.live modal.run cyclic.app koyeb.app
	zeabur.app bubbleapps.io ts.net`)
	catchers = setOf(`
	webhook.site requestbin.com requestbin.net pipedream.net requestcatcher.com beeceptor.com mockbin.org mockbin.io
	hookbin.com postb.in requestinspector.com webhookinbox.com typedwebhook.tools webhook.cool hookdeck.com smee.io
	ptsv2.com ptsv3.com httpdump.app interact.sh oast.pro oast.live oast.site oast.online oast.fun oast.me oastify.com
	burpcollaborator.net canarytokens.com dnslog.cn ceye.io bxss.me xss.ht ezxss.com dnsbin.zhack.ca requestrepo.com
	ngrok.io ngrok.app ngrok.dev ngrok-free.app ngrok-free.dev ngrok.pizza trycloudflare.com loca.lt localtunnel.me
	serveo.net localhost.run lhr.life lhr.rocks localxpose.io loclx.io pagekite.me bore.pub telebit.io playit.gg pinggy.io
	pinggy.link tunnelmole.net devtunnels.ms tunnels.api.visualstudio.com zrok.io ntfy.sh sslip.io nip.io xip.io`)
)

func setOf(list string) map[string]bool {
	set := map[string]bool{}
	for name := range strings.FieldsSeq(list) {
		set[name] = true
	}
	return set
}

// storage tells of hosts where strangers can store or receive data.
func (l *linter) storage(i int, r *Rule) {
	for n, host := range r.Hosts {
		suffix, kind := strangersAt(host)
		if kind == 0 || kind == shelf && (len(r.Paths) > 0 || readsOnly(r)) {
			continue
		}
		hint := "name methods (GET) or paths that are your own, with tls: inspect"
		switch {
		case kind == catcher:
			hint = "remove it, or use a host of your own"
		case strings.HasPrefix(host, "*."):
			hint = "name the hosts that are your own"
		}
		l.tell(i, at(".hosts", n), FindSharedStorage, hint, "%s leads to %s: %s", host, suffix, kind)
	}
}

// readsOnly reports whether nothing can be sent under the rule but an address.
func readsOnly(r *Rule) bool {
	return len(r.Methods) > 0 && !slices.ContainsFunc(r.Methods, func(m string) bool { return m != "GET" && m != "HEAD" && m != "OPTIONS" })
}

// strangersAt returns the suffix of the lists that makes a host of a rule somebody else's, and which kind of place it is; 0: none.
func strangersAt(host string) (string, place) {
	base, wildcard := strings.CutPrefix(host, "*.")
	if shelves[base] && !wildcard {
		return base, shelf
	}
	for name := base; name != ""; _, name, _ = strings.Cut(name, ".") {
		switch {
		case catchers[name]:
			return name, catcher
		case wildcard && plots[name]:
			return name, plot
		}
	}
	if !wildcard {
		return "", 0
	}
	// What of the lists lies below the wildcard; the first by name, so that it is always the same.
	best, kind := "", place(0)
	for _, set := range []map[string]bool{shelves, plots, catchers} {
		for name := range set {
			if strings.HasSuffix(name, "."+base) && (best == "" || name < best) {
				best, kind = name, plot
			}
		}
	}
	return best, kind
}
