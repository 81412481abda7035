package audit

import "slices"

// An Action is a stable code for what was done.
type Action string

const (
	WebhookCreate    Action = "webhook.create"
	WebhookDelete    Action = "webhook.delete"
	OrgRegister      Action = "org.register"
	KeyCreate        Action = "api_key.create"
	KeyDelete        Action = "api_key.delete"
	KeyRotate        Action = "api_key.rotate"
	SandboxCreate    Action = "sandbox.create"
	SandboxStart     Action = "sandbox.start"
	SandboxStop      Action = "sandbox.stop"
	SandboxDelete    Action = "sandbox.delete"
	SandboxExtend    Action = "sandbox.extend"
	SandboxPause     Action = "sandbox.pause"
	SandboxResume    Action = "sandbox.resume"
	SandboxEnd       Action = "sandbox.terminate" // ended by itself: expiry, out of memory, exit
	CommandExecute   Action = "command.execute"
	ShellOpen        Action = "shell.open"
	FileRead         Action = "file.read"
	FileWrite        Action = "file.write"
	FileDelete       Action = "file.delete"
	EgressUpdate     Action = "egress.update"
	EgressAllow      Action = "egress.allow"
	EgressRestore    Action = "egress.restore"
	PolicyUpdate     Action = "policy.update"
	PolicyDelete     Action = "policy.delete"
	PolicyRestore    Action = "policy.restore"
	SandboxEgress    Action = "sandbox.egress" // its own list was set or taken away
	SandboxPolicy    Action = "sandbox.policy" // it was put under another policy
	SettingsUpdate   Action = "settings.update"
	SandboxReconcile Action = "sandbox.reconcile"
	SecretCreate     Action = "secret.create"
	SecretUpdate     Action = "secret.update"
	SecretDelete     Action = "secret.delete"
	SecretGrant      Action = "secret.grant"
	SecretInject     Action = "secret.inject"
	AuthorityCreate  Action = "authority.create"
	AuthorityRotate  Action = "authority.rotate" // a new root began
	AuthoritySwitch  Action = "authority.switch" // it signs now
	AuthorityRetire  Action = "authority.retire" // the old one is trusted no more
	AuthoritySign    Action = "authority.sign"   // an intermediate, for an edge
	AuthorityRevoke  Action = "authority.revoke" // an intermediate was taken back
	TunnelCreate     Action = "tunnel.create"
	TunnelDelete     Action = "tunnel.delete"
	TunnelShorten    Action = "tunnel.shorten" // the org's ingress policy gave it less time
	IngressUpdate    Action = "ingress.update"
	DoorOpen         Action = "door.open"       // a password for an attached sandbox, or its socket
	DoorKeyRotate    Action = "door_key.rotate" // that signs such passwords
	FlowKill         Action = "flow.kill"
	AccessRequest    Action = "egress.request"
	AccessApprove    Action = "egress.request.approve"
	AccessDeny       Action = "egress.request.deny"
	LimitsUpdate     Action = "limits.update"
	QuotaWarning     Action = "quota.warning"   // 80 % of the month's bytes are used
	QuotaUsed        Action = "quota.exhausted" // all of them are
	FloorExempt      Action = "floor.exempt"    // a part of the soft floor was opened, by the platform
	FloorRevoke      Action = "floor.revoke"    // and closed again
	FloorExpire      Action = "floor.expire"    // its time was up
)

// Actions lists every code.
func Actions() []Action {
	return []Action{WebhookCreate, WebhookDelete, OrgRegister, KeyCreate, KeyDelete, KeyRotate, SandboxCreate, SandboxStart, SandboxStop, SandboxDelete, SandboxExtend,
		SandboxPause, SandboxResume, SandboxEnd, CommandExecute, ShellOpen, FileRead, FileWrite, FileDelete, EgressUpdate, EgressAllow,
		PolicyUpdate, PolicyDelete, SettingsUpdate, SandboxReconcile, SecretCreate, SecretUpdate, SecretDelete, SecretGrant, SecretInject,
		AuthorityCreate, AuthorityRotate, AuthoritySwitch, AuthorityRetire, AuthoritySign, AuthorityRevoke,
		TunnelCreate, TunnelDelete, TunnelShorten, IngressUpdate, DoorOpen, DoorKeyRotate, FlowKill, EgressRestore, PolicyRestore, SandboxEgress, SandboxPolicy,
		AccessRequest, AccessApprove, AccessDeny,
		LimitsUpdate, QuotaWarning, QuotaUsed, FloorExempt, FloorRevoke, FloorExpire}
}

// Known reports whether a is one of Actions.
func (a Action) Known() bool { return slices.Contains(Actions(), a) }
