// A page that is opened as a file cannot start a worker, so the search would find nothing. There, this class runs the
// script of a worker in a hidden frame, which has the origin of the page.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.append(frame)
      this.inside = frame.contentWindow
      this.inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", {data}))
      const script = frame.contentDocument.createElement("script")
      this.ready = new Promise(loaded => script.addEventListener("load", loaded))
      script.src = url
      frame.contentDocument.head.append(script)
    }

    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new this.inside.MessageEvent("message", {data})))
    }
  }
}
