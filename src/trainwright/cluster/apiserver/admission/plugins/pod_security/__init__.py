"""The admission plugin PodSecurity: the Pod Security Standards that a namespace's labels choose. All but `plugin` is
pure."""
